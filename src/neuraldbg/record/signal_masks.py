"""Signals and the writing of run files: no signal of the program ends it because of a thread or a write of ours."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.unlisted_thread import UnlistedThread

_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")
"""Signals that an instruction of the thread itself causes: a blocked one ends the process without a word."""


def start_thread(thread: UnlistedThread) -> bool:
    """Start a thread that takes no signals; return False if the system or a closing interpreter gives none.

    A program that blocks a signal in its only thread to wait for it (``signal.sigwait``) would be killed by it if a
    thread of ours could take it. A mask is inherited, so it is set before the start, and put back after it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        return _started(thread)
    faults = {getattr(signal, name) for name in _FAULTS if hasattr(signal, name)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)
    try:
        return _started(thread)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started(thread: UnlistedThread) -> bool:
    try:
        thread.start()
    except (RuntimeError, MemoryError):  # "can't start new thread", or the interpreter is closing
        return False
    return True


@contextmanager
def without_size_signal() -> Iterator[None]:
    """Turn SIGXFSZ off in this thread: a write beyond RLIMIT_FSIZE fails instead, as on a full disk.

    Python ignores the signal, but a program may have asked for its default, which is to end the process.
    """
    number = getattr(signal, "SIGXFSZ", None)
    if number is None or signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        if number not in before:
            if number in signal.sigpending():
                signal.sigwait({number})  # that of our own write: it must not arrive once the mask is gone
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
