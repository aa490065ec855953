"""The autograd graphs that live on from step to step, by the age of their nodes.

Tensors with graphs enter. Nodes are numbered in the order in which a thread makes them, so one walk tells which steps'
nodes a tensor still keeps: the graph of a running loss reaches back to the first step, that of a step's own loss does
not reach back at all.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from neuraldbg.capture.autograd.saved_tensors import REGIONS
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.program_objects import is_a
from neuraldbg.raised import let_pass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.capture.autograd.graph_walk import Node

_LIMIT = 20_000
"""Nodes of one graph that are visited at most."""
_names: dict[str, tuple[str, ...]] = {}
"""Names of the saved tensors of an operation's nodes."""


def number_of(node: Node) -> int | None:
    """Return the number of a node in the order in which its thread made them; None for a leaf's, or if unknown."""
    number = getattr(node, "_sequence_nr", None)
    if number is None:
        return None
    made = int(number())
    return made if 0 <= made < 1 << 62 else None


@dataclass
class Reach:
    """The nodes that one tensor keeps, by the interval between counts in which they were made."""

    nodes: list[int]
    """Number of nodes of each interval."""
    cut: bool = False
    """True if the graph has more nodes than were visited."""
    bytes: int = 0
    """Bytes of the saved tensors that are still there, beside those that ``known`` has."""
    oldest: int = field(default=1 << 62)


def reach(root: Node, bounds: Sequence[int], known: set[int] | None = None, most: int = _LIMIT) -> Reach:
    """Walk the graph of a node, the oldest nodes first. ``bounds`` are the numbers at which intervals end;
    ``known`` are the addresses of storages that are not counted, and grows by those that are; None if none are.
    """
    found, order = Reach([0] * (len(bounds) + 1)), itertools.count()
    seen = {root}
    waiting: list[tuple[int, int, Any]] = [(number_of(root) or 0, next(order), root)]
    while waiting:
        if len(seen) > most:
            found.cut = True
            break
        made, _, node = heapq.heappop(waiting)
        found.oldest = min(found.oldest, made)
        found.nodes[bisect_right(bounds, made)] += 1
        if known is not None:
            found.bytes += _saved_bytes(node, known)
        for parent, _index in node.next_functions:
            if parent is not None and parent not in seen:
                number = number_of(parent)
                if number is not None:  # a leaf keeps nothing but its tensor
                    seen.add(parent)
                    heapq.heappush(waiting, (number, next(order), parent))
    return found


def _saved_bytes(node: Node, known: set[int]) -> int:
    """Return the bytes of the tensors that a node has saved and not released yet."""
    if REGIONS.hold(node):
        return 0
    kind = str(node.name())
    names = _names.get(kind)
    if names is None:
        names = tuple(name for name in dir(type(node)) if name.startswith("_saved_"))
        if len(_names) < 1024:
            _names[kind] = names
    total = 0
    for name in names:
        try:
            value = getattr(node, name, None)
        except RuntimeError as error:  # released by the backward pass
            let_pass(error, "reading saved tensors")
            return total
        for x in (value,) if is_a(value, Tensor) else value if type(value) is tuple else ():
            total += bytes_of(x, known)
    return total


def bytes_of(x: object, known: set[int]) -> int:
    """Return the bytes of a tensor's storage, 0 if it is in ``known``, to which it is added."""
    if not tensor_memory.present(x):
        return 0
    held = x.untyped_storage()
    address = held.data_ptr()
    if not address or address in known:
        return 0
    known.add(address)
    return int(held.nbytes())
