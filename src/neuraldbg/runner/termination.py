"""SIGTERM and SIGHUP: how Slurm, Kubernetes, ``timeout`` and a closed terminal end a program.

Python dies of them at once: no ``finally``, no exit handler, and what is still in the buffers of its output is lost.
A run is saved and diagnosed first, and dies then in the same way. The program sees nothing of it: ``getsignal`` says
SIG_DFL (see ``_signals.c``), and a handler that it sets takes the place of ours. A forked child dies as it always did.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

try:
    from neuraldbg.runner import _signals  # type: ignore[attr-defined]
except ImportError:  # built without a compiler, or for Windows: then such a signal ends the program at once
    _signals: Any = None  # type: ignore[no-redef]

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
STUCK_S = 8
"""Seconds until a process ends in which Python does not come to its next instruction: docker gives ten altogether."""
_LIMIT_S = 120
"""Seconds that saving and diagnosing may take. Whoever sent the signal mostly gives thirty."""
_AGAIN_S = 0.005


class Termination:
    """Calls ``finish`` with the signal and the interrupted frame, then ends the process by that signal.

    ``busy`` tells whether in a frame code of ours is at work, which may hold a lock: then it is tried again.
    """

    def __init__(
        self, finish: Callable[[int, FrameType | None], None], busy: Callable[[FrameType | None], bool]
    ) -> None:
        self._finish, self._busy = finish, busy
        self._stand_in = 0
        self._armed: list[int] = []
        self._over = False
        self._received = 0

    def arm(self) -> None:
        """Listen for the signals that would end the process."""
        self._stand_in = _free()
        if _signals is None or not self._stand_in or threading.get_ident() != threading.main_thread().ident:
            return
        signal.signal(self._stand_in, self._told)
        self._armed = [number for number in SIGNALS if _signals.arm(number, self._stand_in, STUCK_S)]

    def disarm(self) -> None:
        """Listen no more. If a signal came since the program was over, end by it."""
        for number in self._armed:
            _signals.disarm(number)
        if self._armed:
            signal.signal(self._stand_in, signal.SIG_DFL)
        self._armed.clear()
        if self._received:
            die(self._received)

    def over(self) -> None:
        """Note that the program has ended: its run is being saved, and whoever sends a signal now waits for that."""
        self._over = True

    def _told(self, stand_in: int, frame: FrameType | None) -> None:
        number = _signals.received() if self._armed else 0
        if not number:
            return
        if not self._over and self._busy(frame):
            again = threading.Timer(_AGAIN_S, _thread.interrupt_main, (stand_in,))
            again.daemon = True
            again.start()
            return
        _signals.limit(_LIMIT_S)
        self._received = number
        if not self._over:
            self._over = True
            try:
                self._finish(number, frame)
            finally:
                die(number)


def die(number: int) -> None:
    """End the process by a signal, as python does that has no handler for it."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def end_at_exit(number: int) -> bool:
    """Have the process end by a signal when Python has come to its end, exit handlers and all. False where there is no
    native code to do it.
    """
    return _signals is not None and bool(_signals.at_exit(number))


def _free() -> int:
    """Return a signal that nobody uses, 0 if there is none: the last ones that have no meaning of their own."""
    last = getattr(signal, "SIGRTMAX", None)
    candidates = [last - n for n in range(8)] if last is not None else [getattr(signal, "SIGEMT", 0)]
    return next((int(one) for one in candidates if one and signal.getsignal(one) is signal.SIG_DFL), 0)
