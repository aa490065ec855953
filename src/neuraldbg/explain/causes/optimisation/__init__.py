"""Causes in how the loss is optimised: learning rate, batch size, momentum, weight decay, Adam's settings."""
