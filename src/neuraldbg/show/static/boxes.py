"""The positions of the nodes of a graph on the page and the size of their boxes, in inches, without overlap."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from neuraldbg.show.static.labels import POINTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.show.forms import Node

TEXT_PT = 8.5
LINE_IN = 1.3 * TEXT_PT / POINTS
PAD_IN = 0.07
"""Distance in inches between the text and the border of its box."""
GAP_IN = (0.2, 0.22)
"""Least distance in inches between two boxes, across and down: an arrow must fit between them."""
BESIDE_IN = 0.45
"""Left and right of all boxes, for arrows that pass others by."""
LEAST_IN, MOST_IN = 0.75, 3.6
"""Width of a box; where there is no room for the least, nodes are dots."""
LEAST_DOT_PT, MOST_DOT_PT = 2.5, 6.0


@dataclass(frozen=True)
class Boxes:
    """One box for each node, all of one size; of height zero where nodes are dots."""

    width: float
    height: float
    lines: int
    """Number of lines of text in each box."""
    centres: dict[str, tuple[float, float]]
    """Centre of each box by the node's id, in inches from the top left."""

    dot_pt: float = 0.0
    """Size of dots in points, if there is no room for boxes."""

    @property
    def dots(self) -> bool:
        """Return True if there is no room for boxes."""
        return self.lines == 0

    def clear(self, left: float, top: float, right: float, bottom: float) -> bool:
        """Return True if a rectangle touches no box."""
        w, h = self.width / 2, self.height / 2
        return all(right < x - w or left > x + w or bottom < y - h or top > y + h for x, y in self.centres.values())


def place(nodes: Sequence[Node], wide: float, high: float) -> Boxes:
    """Find the largest boxes of one to four lines that leave room for the arrows on a page of that size."""
    spots = _spread(nodes)
    rows: dict[float, list[float]] = {}
    for x, y in spots.values():
        rows.setdefault(round(y, 6), []).append(x)
    across = min((b - a for xs in rows.values() for a, b in pairwise(sorted(xs))), default=None)
    down = min((b - a for a, b in pairwise(sorted(rows))), default=1.0)
    # The centres are kept half a box from the border, so that a wider box brings them together.
    wide -= 2 * BESIDE_IN
    width = min(MOST_IN, wide, wide if across is None else (across * wide - GAP_IN[0]) / (1 + across))
    for lines in (4, 3, 2, 1):
        height = lines * LINE_IN + 2 * PAD_IN
        if width >= LEAST_IN and down * (high - height) >= height + GAP_IN[1]:
            return Boxes(width, height, lines, _centres(spots, wide, high, width, height))
    dot = min(MOST_DOT_PT, max(LEAST_DOT_PT, 0.75 * POINTS * down * high))
    return Boxes(0.2, 0.0, 0, _centres(spots, wide, high, 0.2, 0.2), dot)


def _spread(nodes: Sequence[Node]) -> dict[str, tuple[float, float]]:
    """Return the positions of nodes by id, stretched to the whole page: across around the middle, down from the top."""
    far = max((abs(node.x - 0.5) for node in nodes), default=0.0) or 0.5
    top, bottom = (f((node.y for node in nodes), default=0.0) for f in (min, max))
    high = bottom - top
    return {node.id: (0.5 + 0.5 * (node.x - 0.5) / far, (node.y - top) / high if high else 0.5) for node in nodes}


def _centres(
    spots: dict[str, tuple[float, float]], wide: float, high: float, width: float, height: float
) -> dict[str, tuple[float, float]]:
    """Places from 0 to 1 in inches, half a box from the border at least."""
    return {
        name: (BESIDE_IN + width / 2 + x * (wide - width), height / 2 + y * (high - height))
        for name, (x, y) in spots.items()
    }
