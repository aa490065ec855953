"""Readers of the data: batches, inputs, labels, tokens, the workers of a loader."""
