"""Contextual vectors: every layer for any text, mixed, pooled, stored and searched."""
