"""The capture stage: live torch in, ``Step`` values out. The only stage that hooks a training program.

Rooms, from the top floor to the ground; each may import those below it alone: ``capture.py``; ``coverage.py``,
``attach_checks.py``; ``steps``; ``readers``; ``loop``; ``experiments``; ``layers``; ``parameters``; ``compiled``;
``contracts``; ``autograd``; ``statistics``; ``guest``; the native module ``_kernel``.
"""

from neuraldbg.capture.capture import Capture
from neuraldbg.capture.guest.dynamo_skip import leave_all
from neuraldbg.capture.layers.hook_manager import HookManager

__all__ = ["Capture", "HookManager"]

leave_all()  # here, since at the start of a session it would take a tenth of the time
