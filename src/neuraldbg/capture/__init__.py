"""Live torch in, ``Step`` values out. The only stage that hooks a training program."""

from neuraldbg.capture.capture import Capture
from neuraldbg.capture.hooks import HookManager

__all__ = ["Capture", "HookManager"]
