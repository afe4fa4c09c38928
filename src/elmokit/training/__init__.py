"""The one training loop, with its optimiser, schedule, checkpoints and progress."""
