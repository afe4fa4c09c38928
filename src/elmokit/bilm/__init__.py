"""Ids to a bidirectional language model: its layers, objectives, training and files."""
