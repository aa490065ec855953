"""A thread that ``threading`` does not list: a program that waits until ``threading.active_count()`` is 1, or joins all
threads, must not wait for ours.
"""

from __future__ import annotations

import _thread
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_alive: dict[int, str] = {}
"""Names of the unlisted threads that run, by their identifier."""
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")
"""Signals that an instruction of the thread itself causes: if blocked, they end the process without a message."""


class UnlistedThread:
    """Runs ``target`` in a thread that ends with the process, as a daemon does. ``target`` must not call
    ``threading.current_thread``, which would list the thread.
    """

    def __init__(self, target: Callable[[], None], name: str) -> None:
        self._target, self._name = target, name
        self._ended = _thread.allocate_lock()
        """Held while the thread runs."""

    def start(self) -> None:
        """Start the thread. Raises RuntimeError or MemoryError if no thread can be started."""
        self._ended.acquire()
        try:
            _thread.start_new_thread(self._run, ())
        except BaseException:
            self._ended.release()
            raise

    def _run(self) -> None:
        me = _thread.get_ident()
        _alive[me] = self._name
        try:
            self._target()
        finally:
            _alive.pop(me, None)  # the thread may have forked: the table of the child is empty
            self._ended.release()

    def ended_within(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the end of the thread. Return False if it still runs."""
        ended = self._ended.acquire(timeout=seconds)
        if ended:
            self._ended.release()
        return ended


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


def unlisted_here() -> bool:
    """Return True if the current thread is an unlisted one."""
    return _thread.get_ident() in _alive


def unlisted_numbers() -> frozenset[int]:
    """Return the identifiers of the unlisted threads that run, as of ``threading.get_ident``."""
    return frozenset(_alive)


def unlisted() -> list[str]:
    """Return the names of the unlisted threads that run."""
    return list(_alive.values())


if hasattr(os, "register_at_fork"):  # a thread of the child may get the identifier of one of the parent's
    os.register_at_fork(after_in_child=_alive.clear)
