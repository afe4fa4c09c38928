"""The one training loop, with its optimizer, schedule, checkpoints and metrics."""
