"""Readers of the loss: its terms, which may conflict, and its first value that is not finite."""
