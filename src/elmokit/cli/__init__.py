"""The command line. ``elmokit --help`` imports no torch: each verb loads what it needs when run."""
