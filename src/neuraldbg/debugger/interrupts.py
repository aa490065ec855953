"""A signal that comes while a prompt is being written takes effect at once, not only after the next Enter.

Python's ``input`` looks for signals before it waits for the terminal (``select`` in Modules/readline.c). One that comes
in between is noted, and handled only after a line was typed: 1 of 400 Ctrl-C that were sent within 2 ms of a prompt, 2
of 15 on a machine with much to do. C has ``pselect`` for this, Python has not: so the wait is ended by another signal,
which does nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from neuraldbg.unlisted_thread import UnlistedThread

if TYPE_CHECKING:
    from collections.abc import Iterator

_HANDLED_S = 0.05
"""Seconds after which a signal was handled unless Python waits in C."""


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """Have Python handle each signal soon, in the main thread. Does nothing in other threads, and where no signal is
    free.
    """
    nudge = _free()
    if not nudge or threading.current_thread() is not threading.main_thread():
        yield
        return
    thread = threading.get_ident()
    noted, note = os.pipe()
    os.set_blocking(note, False)

    def watch() -> None:
        while numbers := os.read(noted, 64):
            if any(number != nudge for number in numbers):
                time.sleep(_HANDLED_S)
                signal.pthread_kill(thread, nudge)

    watcher = UnlistedThread(watch, "neuraldbg-prompt")
    theirs = signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    try:
        signal.signal(nudge, lambda *_: None)
        watcher.start()
        yield
    finally:
        signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        os.close(note)
        watcher.ended_within(1.0)
        signal.signal(nudge, signal.SIG_DFL)
        os.close(noted)


def _free() -> int:
    """Return a real-time signal that nobody handles; 0 if there is none, as on macOS and Windows."""
    last = getattr(signal, "SIGRTMAX", 0)
    return next((last - n for n in range(16) if last and signal.getsignal(last - n) is signal.SIG_DFL), 0)
