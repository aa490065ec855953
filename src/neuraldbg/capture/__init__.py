"""Live torch in, ``Step`` values out. The only stage that hooks a training program."""

from neuraldbg.capture.capture import Capture
from neuraldbg.capture.guest.dynamo_skip import leave_all
from neuraldbg.capture.layers.hook_manager import HookManager

__all__ = ["Capture", "HookManager"]

leave_all()  # here, and not when a session begins: there it would be a tenth of the time
