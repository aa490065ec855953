"""Causes in the loss: it does not compute the intended quantity, or gets the wrong outputs or targets."""
