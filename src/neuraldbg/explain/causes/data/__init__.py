"""Causes in the data: values, scale, order and splits of inputs and targets."""
