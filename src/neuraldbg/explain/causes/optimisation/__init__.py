"""Causes in how the loss is optimised."""
