"""Causes in the model: initial scale, depth, activations."""
