"""A thread that ``threading`` does not list: a program may wait until it is alone, by ``threading.active_count()``, or
join all threads that there are, and must not wait for ours.
"""

from __future__ import annotations

import _thread
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_alive: dict[int, str] = {}
"""Names of such threads by their number."""


class UnlistedThread:
    """Runs ``target`` in a thread that ends with the process, as a daemon does. It is not to call
    ``threading.current_thread``, which would list it.
    """

    def __init__(self, target: Callable[[], None], name: str) -> None:
        self._target, self._name = target, name
        self._ended = _thread.allocate_lock()
        """Held while the thread runs."""

    def start(self) -> None:
        """Begin; RuntimeError or MemoryError if the system or a closing interpreter gives no thread."""
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
            _alive.pop(me, None)  # it may have forked: the child knows of none
            self._ended.release()

    def ended_within(self, seconds: float) -> bool:
        """Wait so long at most for its end; return False if it still runs."""
        ended = self._ended.acquire(timeout=seconds)
        if ended:
            self._ended.release()
        return ended


def unlisted_here() -> bool:
    """Return True in such a thread."""
    return _thread.get_ident() in _alive


def unlisted_numbers() -> frozenset[int]:
    """Return the numbers of those that run, as of ``threading.get_ident``."""
    return frozenset(_alive)


def unlisted() -> list[str]:
    """Return the names of those that run."""
    return list(_alive.values())


if hasattr(os, "register_at_fork"):  # a thread of the child may get the number of one of the parent's
    os.register_at_fork(after_in_child=_alive.clear)
