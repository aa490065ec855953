"""Saved tensors of autograd nodes, and the regions in which reading them would run the program's code.

A region of ``torch.autograd.graph.saved_tensors_hooks`` packs the tensors that nodes save: checkpointing drops them,
offloading moves them. Reading such a tensor unpacks it, which runs the program's code once more. Nodes of a thread are
numbered as they are made, so that the numbers at which a region begins and ends give the nodes that belong to it.
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
"""Regions that are kept apart; beyond that the oldest two are merged, with all that is between them."""
_NEVER = 1 << 63


class Regions:
    """The regions of packed saved tensors in the threads of this process, since the first session began."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._unlock)
        self._open: dict[int, list[int]] = {}
        """{thread: node numbers at which its open regions began}."""
        self._first: list[int] = []
        self._last: list[int] = []
        self._booking: set[int] = set()
        """Threads that are inside ``_booked``."""
        self._sessions = 0
        self.entered = 0
        """Number of regions begun; a session detects by it whether there were any during the session."""
        self._unsure = False
        """True once a region may have been missed; then any node may be in one."""

    def _unlock(self) -> None:
        """Replace the lock in a forked child: the thread that held the lock does not exist there."""
        self._lock = threading.RLock()

    def enter(self) -> None:
        """Record the begin of a region in this thread."""
        with self._lock, self._doubting():
            self.entered += 1
            self._open.setdefault(threading.get_ident(), []).append(next_number())

    @contextlib.contextmanager
    def _doubting(self) -> Iterator[None]:
        """Treat every node as one of a region from now on if the body raises."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (a debugger must not break what it watches)
            self._unsure = True
            let_pass(error, "following saved tensors")

    def watch(self) -> None:
        """Begin a session; this thread may be in a region already."""
        self._sessions += 1
        top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # noqa: SLF001 (nothing public tells)
        if not self._open.get(threading.get_ident()) and top is not None and top(True) is not None:
            self.enter()

    def unwatch(self) -> None:
        """End a session; after the last one the ends of regions are not observed."""
        self._sessions -= 1
        while not self._sessions and self._open.get(threading.get_ident()):
            self.leave()
        if not self._sessions:
            self._open.clear()

    def leave(self) -> None:
        """Record the end of the innermost region of this thread."""
        with self._lock, self._doubting():
            begun = self._open.get(threading.get_ident())
            first = begun.pop() if begun else 0
            if begun is not None and not begun:
                del self._open[threading.get_ident()]
            at = bisect_right(self._first, first)
            self._first.insert(at, first)
            self._last.insert(at, max(next_number(), self._last[at - 1] if at else 0))
            if len(self._first) > _REGIONS:
                del self._first[1], self._last[0]

    def enters(self, *_: Any) -> Around:
        """Wrap torch's push of saved-tensor hooks, which begins a region."""
        yield from self._booked(self.enter)

    def leaves(self, *_: Any) -> Around:
        """Wrap torch's pop of saved-tensor hooks, which ends a region."""
        yield from self._booked(self.leave)

    def _booked(self, book: Callable[[], None]) -> Around:
        """Record once, though each of several sessions wraps the same function."""
        thread = threading.get_ident()
        if thread in self._booking:  # the wrapper of another session called this one
            return
        try:
            self._booking.add(thread)
            book()
            yield
        finally:
            self._booking.discard(thread)

    def hold(self, node: Node) -> bool:
        """Return True if a node may have been made in a region. True for a node without a number."""
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
"""The one account of regions, shared by all sessions: regions belong to threads."""


def saved(node: Node | None, name: str) -> Tensor | None:
    """Return a saved tensor. None if there is none, it was freed or changed in place, it is packed, or its numbers
    cannot be read.
    """
    if node is None or REGIONS.hold(node):
        return None
    try:
        value = getattr(node, f"_saved_{name}", None)
    except RuntimeError as error:
        let_pass(error, "reading saved tensors")
        return None
    return tensor_memory.readable(value)


def next_number() -> int:
    """Return the number of the next node of this thread, 0 if torch does not report it."""
    tell = getattr(torch._C._autograd, "_get_sequence_nr", None)  # noqa: SLF001
    return int(tell()) if tell is not None else 0
