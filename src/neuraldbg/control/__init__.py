"""The conditions under which a session stops the training or calls the user.

- ``trigger.py``: stop conditions on the loss and the gradient norms of one step
"""

from neuraldbg.control.trigger import TriggerEngine

__all__ = ["TriggerEngine"]
