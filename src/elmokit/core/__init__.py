"""What every package builds on: errors, settings, storage, names, the console."""
