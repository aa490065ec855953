"""Readers of the loss: terms that pull against each other, and the first value that is not finite."""
