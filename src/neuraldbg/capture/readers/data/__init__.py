"""Readers of the data: batches, inputs, labels, tokens, and the workers of a loader."""
