"""The timers of the program, which run on while it does not: at its end, and at a stop in the debugger."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def time_stopped() -> Iterator[None]:
    """Stop the program's timers in this context. After its end the program would be gone without us, and a time limit
    of its own (SIGALRM) would never arrive; at a stop in the debugger its time stands still.
    """
    mine = threading.get_ident() == threading.main_thread().ident
    running = [(timer, _stopped(timer)) for timer in (_TIMERS if mine else ())]
    try:
        yield
    finally:
        for timer, (left, every) in running:
            if left and not signal.getitimer(timer)[0]:  # or one of ours runs: see ``_signals.limit``
                signal.setitimer(timer, left, every)


def _stopped(timer: int) -> tuple[float, float]:
    """Stop a timer. Return the seconds that were left, and the interval of a repeating one in seconds."""
    left = (0.0, 0.0)
    try:
        left = signal.getitimer(timer)
        signal.setitimer(timer, 0.0)
    except BaseException:  # noqa: BLE001 (of the program's handler: the signal came in the last microsecond)
        signal.setitimer(timer, 0.0)
    return left


_TIMERS: tuple[int, ...] = tuple(
    getattr(signal, name) for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF") if hasattr(signal, name)
)
