"""Word vectors to answers: text classification, its measures and its report."""
