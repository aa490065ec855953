"""Causes in the data: inputs and targets."""
