"""Causes in the model: initial scale, depth, activations, normalisation, attention, capacity."""
