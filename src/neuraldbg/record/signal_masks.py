"""Signal masks of our threads and writes: no signal ends the program because of a thread or a write of ours."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.unlisted_thread import UnlistedThread

_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")
"""Signals that an instruction of the thread itself causes: if blocked, they end the process without a message."""


def start_thread(thread: UnlistedThread) -> bool:
    """Start a thread with all signals blocked. Return False if no thread can be started.

    A program that blocks a signal in its only thread to wait for it (``signal.sigwait``) would be killed by that signal
    if a thread of ours could receive it. A thread inherits the mask, so it is set before the start, and restored after.
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
    """Block SIGXFSZ in this thread, so that a write beyond RLIMIT_FSIZE fails with an error, as on a full disk.

    Python ignores the signal, but a program may have restored its default, which ends the process.
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
                signal.sigwait({number})  # caused by our own write: it must not arrive once the mask is restored
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
