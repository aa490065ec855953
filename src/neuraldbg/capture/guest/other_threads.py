"""The test, from outside, for other threads of the program that only wait.

No lock of Python's protects a gradient: a backward pass replaces it while it runs without that lock, and ``p.grad =
None`` releases the lock while the memory is freed. A thread that reads ``.grad`` at that moment reads freed memory. So
gradients are read by the thread that trains, or while that thread surely does nothing.
"""

from __future__ import annotations

import sys
from threading import get_ident
from typing import TYPE_CHECKING

from torch.autograd.graph import _engine_run_backward

from neuraldbg.unlisted_thread import unlisted_numbers

if TYPE_CHECKING:
    from types import FrameType

_BACKWARD = _engine_run_backward.__code__
_WAITING = frozenset({
    "asyncio.base_events", "asyncio.unix_events", "concurrent.futures._base", "concurrent.futures.thread",
    "execnet.gateway_base", "multiprocessing.connection", "multiprocessing.pool", "multiprocessing.popen_fork",
    "multiprocessing.queues", "multiprocessing.synchronize", "queue", "selectors", "socket", "socketserver", "ssl",
    "subprocess", "threading", "tkinter",
})  # fmt: skip
"""Modules of Python's library in which a thread only waits, if its innermost frame is in one of them."""


def others() -> dict[int, FrameType]:
    """Return the innermost frame of each other thread that runs Python for the program, by thread number."""
    ours = unlisted_numbers()
    me = get_ident()
    return {n: frame for n, frame in sys._current_frames().items() if n != me and n not in ours}  # noqa: SLF001 (no public way)


def waits(thread: int) -> bool:
    """Return True if a thread waits in Python's library, outside of any backward pass, or runs no Python."""
    frame = others().get(thread)
    return frame is None or _waits(frame)


def others_wait() -> bool:
    """Return True if all other threads of the program only wait."""
    return all(map(_waits, others().values()))


def _waits(innermost: FrameType) -> bool:
    if innermost.f_globals.get("__name__") not in _WAITING:
        return False
    frame: FrameType | None = innermost
    while frame is not None:
        if frame.f_code is _BACKWARD:
            return False
        frame = frame.f_back
    return True
