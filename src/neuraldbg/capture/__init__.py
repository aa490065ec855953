"""Live torch in, ``Step`` values out. The only stage that hooks a training program."""

from neuraldbg.capture.capture import Capture
from neuraldbg.capture.hooks import HookManager
from neuraldbg.capture.unseen import leave_all

__all__ = ["Capture", "HookManager"]

leave_all()  # here, and not when a session begins: there it would be a tenth of the time
