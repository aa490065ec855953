"""Causes in what is optimised: the loss is not what is meant."""
