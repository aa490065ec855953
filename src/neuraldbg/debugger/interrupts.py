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

from neuraldbg.forks import tell_children
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
    watcher = _Watcher(nudge)
    tell_children(watcher)
    try:
        watcher.start()
        yield
    finally:
        watcher.stop()


class _Watcher:
    """Sends a signal that does nothing, ``nudge``, to the main thread soon after each other signal."""

    def __init__(self, nudge: int) -> None:
        self._nudge, self._main = nudge, threading.get_ident()
        self._noted, self._note = os.pipe()
        os.set_blocking(self._note, False)
        self._over = False
        """True once no signal is to be sent any more, and in a forked child."""
        self._thread = UnlistedThread(self._watch, "neuraldbg-prompt")
        self._theirs = signal.set_wakeup_fd(self._note, warn_on_full_buffer=False)

    def start(self) -> None:
        """Start to watch. Raises RuntimeError if no thread can be started."""
        signal.signal(self._nudge, lambda *_: None)
        self._thread.start()

    def stop(self) -> None:
        """Send no signal any more, and put back what the program had. Does nothing in a forked child."""
        if self._over:
            return
        self._over = True
        signal.set_wakeup_fd(self._theirs, warn_on_full_buffer=False)
        with contextlib.suppress(BlockingIOError):  # the pipe is full: there is something to read
            os.write(self._note, b"\0")  # a child that was forked here holds the pipe open: it would not end
        if not self._thread.ended_within(1.0):
            return  # the handler and the pipe stay: another file may get the number that the thread reads from
        signal.signal(self._nudge, signal.SIG_IGN)  # drops one that has not arrived, which would end the process
        self._put_back()

    def in_child(self) -> None:
        """Put back what the program had: its parent's pipe is not for the signals of a forked child."""
        if self._over:
            return
        self._over = True
        signal.set_wakeup_fd(self._theirs, warn_on_full_buffer=False)
        self._put_back()

    def _put_back(self) -> None:
        signal.signal(self._nudge, signal.SIG_DFL)
        os.close(self._note)
        os.close(self._noted)

    def _watch(self) -> None:
        while numbers := os.read(self._noted, 64):
            if any(number not in (0, self._nudge) for number in numbers):
                time.sleep(_HANDLED_S)
            if self._over:
                return
            if any(number != self._nudge for number in numbers):
                signal.pthread_kill(self._main, self._nudge)


def _free() -> int:
    """Return a real-time signal that nobody handles; 0 if there is none, as on macOS and Windows."""
    last = getattr(signal, "SIGRTMAX", 0)
    return next((last - n for n in range(16) if last and signal.getsignal(last - n) is signal.SIG_DFL), 0)
