"""The handling of SIGTERM and SIGHUP, by which Slurm, Kubernetes, ``timeout`` and a closed terminal end a program.

Python dies of them at once: no ``finally``, no exit handler, and buffered output is lost. A run is saved and diagnosed
first, and dies then in the same way. The program notices nothing: ``getsignal`` returns SIG_DFL (see ``_signals.c``),
and a handler that the program sets replaces ours. A forked child dies as always.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

try:
    from neuraldbg.runner import _signals  # type: ignore[attr-defined]
except ImportError:  # built without a compiler, or for Windows: such a signal ends the program at once
    _signals: Any = None  # type: ignore[no-redef]

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
STUCK_S = 8
"""Seconds after which a process ends whose Python does not reach its next instruction: docker gives ten altogether."""
_LIMIT_S = 120
"""Seconds that saving and diagnosing may take. The sender of the signal mostly gives thirty."""
_AGAIN_S = 0.005
"""Seconds until the next try if code of ours runs."""


class Termination:
    """Calls ``finish`` with the signal and the interrupted frame, then ends the process by that signal.

    ``busy(frame)`` returns True if code of ours runs in the frame, which may hold a lock: it is then tried again.
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
        """Catch the signals that would end the process."""
        self._stand_in = _free()
        if _signals is None or not self._stand_in or threading.get_ident() != threading.main_thread().ident:
            return
        signal.signal(self._stand_in, self._told)
        self._armed = [number for number in SIGNALS if _signals.arm(number, self._stand_in, STUCK_S)]

    def disarm(self) -> None:
        """Catch no more signals. If one came after the program was over, end by it."""
        for number in self._armed:
            _signals.disarm(number)
        if self._armed:
            signal.signal(self._stand_in, signal.SIG_DFL)
        self._armed.clear()
        if self._received:
            die(self._received)

    def over(self) -> None:
        """Note that the program has ended and its run is being saved: a signal now waits until ``disarm``."""
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
    """End the process by a signal, as python without a handler for it does."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def end_at_exit(number: int) -> bool:
    """End the process by a signal after Python's finalisation, exit handlers included. Return False without native
    code.
    """
    return _signals is not None and bool(_signals.at_exit(number))


def _free() -> int:
    """Return a signal without a handler, of the last real-time signals, which have no meaning of their own; 0 if there
    is none.
    """
    last = getattr(signal, "SIGRTMAX", None)
    candidates = [last - n for n in range(8)] if last is not None else [getattr(signal, "SIGEMT", 0)]
    return next((int(one) for one in candidates if one and signal.getsignal(one) is signal.SIG_DFL), 0)
