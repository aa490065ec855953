"""The branches of a loss: the places of the autograd graph that two terms of a sum reach by separate ways.

The node of a loss enters; the terms of its sum leave, and for each place that several terms reach the nodes through
which each of them does. No node may be kept beyond the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.autograd.graph_walk import Marks, Node, op_name, parents

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_TERMS = 4
"""Terms at most: a loss with more is a regulariser over many weights, or a sum over samples, and not several tasks."""
LIMIT = 4000
"""Nodes visited for one term at most."""
PLACES = 8
"""Meeting places that are read at most."""
_SUMS = frozenset(["add", "sub", "stack", "cat"])
_THROUGH = frozenset(["mul", "div", "neg", "sum", "mean", "clone", "tocopy", "view", "reshape", "squeeze", "unsqueeze"])


@dataclass
class Meeting:
    """A place in the graph that several terms reach."""

    node: Node
    output: int
    ways: list[tuple[int, Node, int]]
    """(term, node that consumes the place, input index of the place there)."""


def terms(root: Node) -> list[Node]:
    """Return the nodes of the terms that a scalar loss is the sum of; fewer than two if it is no such sum."""
    found: list[Node] = []
    queue = [root]
    while queue:
        node = queue.pop(0)
        name, above = op_name(node), [parent for parent, _ in parents(node)]
        summed = name in _SUMS and len(above) > 1 and all(_single(parent) for parent in above)
        through = name in _THROUGH and len(above) == 1 and (_single(above[0]) or op_name(above[0]) in ("stack", "cat"))
        if summed or through:
            queue += above
        else:
            found.append(node)
        if len(found) + len(queue) > MOST_TERMS:
            return []
    return found


def _single(node: Node) -> bool:
    """Return True if a node's output is one number."""
    shapes: Any = getattr(node, "_input_metadata", None) or ()
    return bool(shapes) and all(size == 1 for size in shapes[0].shape)


def meetings(roots: list[Node]) -> list[Meeting]:
    """Return the places that at least two terms reach, each through nodes of its own."""
    owners: dict[Node, int] = {}
    for term, root in enumerate(roots):
        for node in _reached(root):
            owners[node] = owners.get(node, 0) | 1 << term
    found: dict[tuple[Node, int], Meeting] = {}
    for node, mask in owners.items():
        if mask & (mask - 1):
            continue  # beyond a meeting place already
        for place, (above, output) in enumerate(node.next_functions):
            if above is not None and owners.get(above, 0) & (owners.get(above, 0) - 1):
                meeting = found.setdefault((above, output), Meeting(above, output, []))
                meeting.ways.append((mask.bit_length() - 1, node, place))
    return [m for m in found.values() if len({term for term, _, _ in m.ways}) > 1][:PLACES]


def _reached(root: Node) -> Iterator[Node]:
    seen, queue = {root}, [root]
    for node in queue:
        yield node
        for above, _ in parents(node):
            if above not in seen and len(queue) < LIMIT:
                seen.add(above)
                queue.append(above)


def layer_of(node: Node, marks: Marks) -> str | None:
    """Return the layer at or nearest above a node, None if there is none within 64 nodes."""
    for one, _ in zip(_reached(node), range(64), strict=False):
        layer = marks.get(one)
        if layer is not None:
            return layer
    return None
