"""The variables of a running frame of the program, read so that none of them lives longer."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

from neuraldbg.capture.guest.program_objects import items

if TYPE_CHECKING:
    from types import FrameType

_OURS_ALONE = 3
"""References to a frame's dictionary of variables if only we hold it: the frame's, ours, and getrefcount's own."""


def variables_of(frame: FrameType) -> list[tuple[str, object]]:
    """Return a frame's variables, without keeping them alive.

    Before Python 3.13, reading ``f_locals`` of a function makes a dictionary that the frame keeps until it ends: in a
    ``main()`` that trains for days, that would hold the first batch, graph and optimizer. It is emptied unless other
    code holds it (a ``locals()`` that the program stored) or a debugger will write it back.
    """
    held = frame.f_locals
    if type(held) is not dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED == 0:
        return list(items(held))  # of a class body: a mapping that a metaclass has made
    found = list(held.items())
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        if sys.gettrace() is None and sys.getrefcount(held) <= _OURS_ALONE:
            held.clear()
    return found
