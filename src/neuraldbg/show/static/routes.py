"""The ways of arrows between the boxes of a graph: through the gaps between boxes, and never through one.

Boxes stand in rows. An arrow to the next row goes straight; one that passes rows by goes down a lane beside their
boxes. All numbers are inches from the top left.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Point: TypeAlias = "tuple[float, float]"
Frame: TypeAlias = "tuple[float, float, float, float]"
"""Left, top, right and bottom."""
CLEAR_IN, APART_IN, EDGE_IN = 0.07, 0.1, 0.05
"""Distances of a lane from boxes, from other lanes, and from the edge of the page."""


class Routes:
    """The ways of a graph's arrows; each takes its lane, and later ones keep away from it."""

    def __init__(self, centres: Mapping[str, Point], size: tuple[float, float], wide: float) -> None:
        """``centres`` and ``size``, width and height, are those of the boxes, ``wide`` is the width of the page."""
        self._centres, (self._width, self._height), self._wide = centres, size, wide
        self._heights = sorted({round(y, 4) for _, y in centres.values()})
        self._row = {name: self._heights.index(round(y, 4)) for name, (_, y) in centres.items()}
        self._lanes: list[tuple[float, int, int]] = []
        """Place of each lane, and the first and the last row that it passes by."""

    def way(self, source: str, target: str) -> list[Point]:
        """Return the corners of an arrow from the bottom of one box to the top of another."""
        (x0, y0), (x1, y1) = self._centres[source], self._centres[target]
        half = self._height / 2
        begin, end = (x0, y0 + half), (x1, y1 - half)
        first, last = self._row[source], self._row[target]
        if last == first + 1:
            return [begin, end]
        down = last > first
        passed = range(first + 1, last) if down else range(last, first + 1)
        x = self._lane(passed, (x0 + x1) / 2)
        self._lanes.append((x, passed[0], passed[-1]))
        top, bottom = self._heights[passed[0]] - half, self._heights[passed[-1]] + half
        return [begin, (x, top), (x, bottom), end] if down else [begin, (x, bottom), (x, top), end]

    def _lane(self, passed: range, wanted: float) -> float:
        """Return the free place nearest to the wanted one beside the boxes of some rows."""
        half = self._width / 2 + CLEAR_IN
        rows = {self._heights[row] for row in passed}
        taken = [(x - half, x + half) for x, y in self._centres.values() if round(y, 4) in rows]
        taken += [(x - APART_IN, x + APART_IN) for x, a, b in self._lanes if a <= passed[-1] and passed[0] <= b]
        low, high = EDGE_IN, self._wide - EDGE_IN
        places = [wanted, *(end for pair in taken for end in pair)]
        free = [x for x in places if low <= x <= high and all(not a < x < b for a, b in taken)]
        return min(free, key=lambda x: abs(x - wanted), default=low)


def crosses(way: Sequence[Point], frame: Frame) -> bool:
    """Return True if a way leads through a rectangle."""
    return any(_meets(a, b, frame) for a, b in pairwise(way))


def _meets(a: Point, b: Point, frame: Frame) -> bool:
    """Clip the part from a to b at the four sides (Liang and Barsky 1984); return True if anything is left."""
    (x, y), (dx, dy) = a, (b[0] - a[0], b[1] - a[1])
    enters, leaves = 0.0, 1.0
    for change, room in ((-dx, x - frame[0]), (dx, frame[2] - x), (-dy, y - frame[1]), (dy, frame[3] - y)):
        if change == 0:
            if room < 0:
                return False
            continue
        share = room / change
        if change < 0:
            enters = max(enters, share)
        else:
            leaves = min(leaves, share)
    return enters <= leaves


def beside(way: Sequence[Point], wide: float, high: float) -> Iterable[Frame]:
    """Yield places for a label of that size beside a way: at the middle of each part, the longest first."""
    parts = sorted(pairwise(way), key=lambda part: -abs(part[1][1] - part[0][1]))
    for (x0, y0), (x1, y1) in parts:
        for share in (0.5, 0.3, 0.7):
            x, y = x0 + share * (x1 - x0), y0 + share * (y1 - y0)
            for left in (x + 0.06, x - 0.06 - wide):
                yield left, y - high / 2, left + wide, y + high / 2
