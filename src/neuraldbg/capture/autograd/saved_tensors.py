"""Saved tensors of autograd nodes, and which of them must not be looked at.

A region of ``torch.autograd.graph.saved_tensors_hooks`` packs what nodes save: checkpointing throws it away,
offloading moves it. To look at such a tensor unpacks it, and that runs the program's code once more. Nodes of a thread
are numbered as they are made, so that the numbers at which a region begins and ends tell which nodes belong to it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.raised import let_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from neuraldbg.capture.autograd.graph_walk import Node
    from neuraldbg.capture.guest.stand_in import Around

_REGIONS = 1024
"""Regions that are told apart; the oldest two then count as one, with all that lies between them."""
_NEVER = 1 << 63


class Regions:
    """Where the threads of this process have packed saved tensors since a session first began."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._unlock)
        self._open: dict[int, list[int]] = {}
        """Thread -> the numbers at which its open regions began."""
        self._first: list[int] = []
        self._last: list[int] = []
        self._booking: set[int] = set()
        """Threads in which a region begins or ends just now."""
        self._sessions = 0
        self.entered = 0
        """How many have begun: a session sees by it whether there were any in its time."""
        self._unsure = False
        """Whether one has begun or ended unseen: then any node may be of one."""

    def _unlock(self) -> None:
        """Be free in a forked child: who held the lock is not there."""
        self._lock = threading.RLock()

    def enter(self) -> None:
        """A region begins in this thread."""
        with self._lock, self._doubting():
            self.entered += 1
            self._open.setdefault(threading.get_ident(), []).append(_number())

    @contextlib.contextmanager
    def _doubting(self) -> Iterator[None]:
        """Take every node for one of a region from now on if what is done here fails."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (a debugger must not break what it watches)
            self._unsure = True
            let_pass(error, "following saved tensors")

    def watch(self) -> None:
        """A session begins; this thread may be in a region already."""
        self._sessions += 1
        top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # noqa: SLF001 (nothing public tells)
        if not self._open.get(threading.get_ident()) and top is not None and top(True) is not None:
            self.enter()

    def unwatch(self) -> None:
        """A session ends; after the last one nobody sees regions end."""
        self._sessions -= 1
        while not self._sessions and self._open.get(threading.get_ident()):
            self.leave()
        if not self._sessions:
            self._open.clear()

    def leave(self) -> None:
        """The innermost region of this thread ends."""
        with self._lock, self._doubting():
            begun = self._open.get(threading.get_ident())
            first = begun.pop() if begun else 0
            if begun is not None and not begun:
                del self._open[threading.get_ident()]
            at = bisect_right(self._first, first)
            self._first.insert(at, first)
            self._last.insert(at, max(_number(), self._last[at - 1] if at else 0))
            if len(self._first) > _REGIONS:
                del self._first[1], self._last[0]

    def enters(self, *_: Any) -> Around:
        """Surround the beginning of a region."""
        yield from self._booked(self.enter)

    def leaves(self, *_: Any) -> Around:
        """Surround the end of a region."""
        yield from self._booked(self.leave)

    def _booked(self, book: Callable[[], None]) -> Around:
        """Book once where each of several sessions stands for the same function."""
        thread = threading.get_ident()
        if thread in self._booking:  # what stands for it in another session calls this one
            return
        try:
            self._booking.add(thread)
            book()
            yield
        finally:
            self._booking.discard(thread)

    def hold(self, node: Node) -> bool:
        """Return True if a node may have been made in one. A node that has no number is taken to be."""
        if not (self._first or self._open or self._unsure):
            return False
        if self._unsure:
            return True
        number = getattr(node, "_sequence_nr", None)
        if number is None:
            return True
        made = int(number())
        with self._lock:  # other threads add regions meanwhile
            if any(made >= first for begun in self._open.values() for first in begun):
                return True
            at = bisect_right(self._first, made)
            return at > 0 and made < self._last[at - 1]


REGIONS = Regions()
"""Regions belong to threads and not to sessions: there is one account of them."""


def saved(node: Node | None, name: str) -> Tensor | None:
    """Return a saved tensor; None if there is none, it is gone (freed, or changed in place), it is packed, or its
    numbers cannot be looked at.
    """
    if node is None or REGIONS.hold(node):
        return None
    try:
        value = getattr(node, f"_saved_{name}", None)
    except RuntimeError as error:
        let_pass(error, "reading saved tensors")
        return None
    return tensor_memory.readable(value)


def _number() -> int:
    """Return the number that the next node of this thread will have; 0 where torch does not say."""
    tell = getattr(torch._C._autograd, "_get_sequence_nr", None)  # noqa: SLF001
    return int(tell()) if tell is not None else 0
