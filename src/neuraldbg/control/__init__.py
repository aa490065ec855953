"""Conditions in, actions out: what makes a session stop the training or call the user."""

from neuraldbg.control.trigger import TriggerEngine

__all__ = ["TriggerEngine"]
