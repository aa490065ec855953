"""Places for the boxes of a `Flow`: rows in the order of the data, as of Sugiyama, Tagawa and Toda (1981).

A layer stands one row below the lowest of what it reads. An edge that passes rows gets a lane in each of them. Within
a row, order is chosen to cross few edges, and places lie as near to the means of their neighbours as the widths of the
boxes allow (least squares under an order, by pool adjacent violators: Barlow and others 1972). A long chain goes on in
a further column where only one edge has to be cut. All numbers are pixels.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right, insort
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neural.visual.data_flow import BEGIN, BLOCK, SUM
from neural.visual.text_width import text_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from neural.visual.data_flow import Flow, Node

TITLE, WORDS = 13.0, 11.5
"""Sizes of the two fonts."""
PAD, LINE, HEAD = 12.0, 16.0, 20.0
"""Room between a box and its words, and heights of a line and of a title."""
ACROSS, DOWN, LANE = 26.0, 30.0, 18.0
"""Gaps between boxes of a row, between rows, and around a lane."""
BETWEEN = 56.0
"""Gap between columns."""
TALL = 1100.0
"""A flow that is not taller stays in one column."""
SHARE = 1.5
"""The width of a folded flow as a multiple of its height."""
LEAST = 0.3
"""The least height of the last column, as a share of that of the others."""
SWEEPS, EFFORT = 12, 60_000
"""Passes over all rows, and boxes and lanes that all passes together see at most, apart from the first two."""


@dataclass(frozen=True)
class Way:
    """Hold the corners of an edge. Corners at which it passes a row are joined by curves, those of a fold by lines."""

    points: tuple[tuple[float, float], ...]
    straight: bool = False
    """True if all parts are straight lines."""


@dataclass(frozen=True)
class Spot:
    """Hold a box with its place: left, top, width and height."""

    node: Node
    x: float
    y: float
    width: float
    height: float
    inner: Placed | None = None

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@dataclass(frozen=True)
class Placed:
    """Hold a flow with places from its left top corner."""

    spots: tuple[Spot, ...]
    ways: tuple[Way, ...]
    width: float
    height: float


@dataclass
class _Item:
    """Hold a box or a lane in a row."""

    width: float
    height: float
    node: Node | None = None
    """None for a lane."""
    inner: Placed | None = None
    x: float = 0.0
    """Its middle."""
    above: list[_Item] = field(default_factory=list)
    below: list[_Item] = field(default_factory=list)
    place: int = 0

    @property
    def gap(self) -> float:
        return ACROSS / 2 if self.node is not None else LANE / 2


def placed(flow: Flow) -> Placed:
    """Return the flow with a place for every box, those of blocks included."""
    items = {node.name: _item(node) for node in flow.nodes}
    rows, chains = _rows(flow, items)
    _order(rows)
    _align(rows)
    left = min(item.x - item.width / 2 for row in rows for item in row)
    for row in rows:
        for item in row:
            item.x -= left
    tops = _tops(rows)
    return _in_columns(rows, chains, tops)


def _item(node: Node) -> _Item:
    if node.kind == BEGIN:
        return _Item(8, 8, node)
    if node.kind == SUM:
        return _Item(24, 24, node)
    wide = max(text_width(node.title, TITLE, bold=True), *(text_width(line, WORDS) for line in node.lines), 60)
    high = HEAD + LINE * len(node.lines)
    if node.kind != BLOCK or node.inner is None:
        return _Item(wide + 2 * PAD, high + PAD, node)
    inner = placed(node.inner)
    return _Item(max(wide, inner.width) + 2 * PAD, high + inner.height + 2.5 * PAD, node, inner)


# ---------------------------------------------------------------- rows and their order


def _rows(flow: Flow, items: Mapping[str, _Item]) -> tuple[list[list[_Item]], list[list[_Item]]]:
    """Return the rows, and for each edge its items from the upper box to the lower one."""
    row = dict.fromkeys(items, 0)
    readers = defaultdict(list)
    for upper, lower in flow.edges:  # in the order of the data
        row[lower] = max(row[lower], row[upper] + 1)
        readers[upper].append(lower)
    read = {lower for _, lower in flow.edges}
    for name in items:
        if name not in read and readers[name]:  # an input stands right above its reader
            row[name] = min(row[each] for each in readers[name]) - 1
    rows: list[list[_Item]] = [[] for _ in range(max(row.values()) + 1)]
    for name, item in items.items():
        rows[row[name]].append(item)
    chains = []
    for upper, lower in flow.edges:
        lanes = [_Item(0, 0) for _ in range(row[upper] + 1, row[lower])]
        for at, lane in enumerate(lanes, row[upper] + 1):
            rows[at].append(lane)
        chain = [items[upper], *lanes, items[lower]]
        for one, other in itertools.pairwise(chain):
            one.below.append(other)
            other.above.append(one)
        chains.append(chain)
    return rows, chains


def _order(rows: list[list[_Item]]) -> None:
    """Order each row by the means of its neighbours' places, and keep the order with the fewest crossings."""
    _number(rows)
    if all(len(row) == 1 for row in rows):
        return
    best, order = _crossings(rows), [list(row) for row in rows]
    for sweep in range(_sweeps(rows)):
        if not best:
            break
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            means = {id(item): _mean(item.above if down else item.below, item.place) for item in row}
            row.sort(key=lambda item: means[id(item)])
            for place, item in enumerate(row):
                item.place = place
        found = _crossings(rows)
        if found < best:
            best, order = found, [list(row) for row in rows]
    rows[:] = order
    _number(rows)


def _sweeps(rows: Iterable[Sequence[_Item]]) -> int:
    """Return the number of passes: a network with thousands of lanes has fewer."""
    return max(2, min(SWEEPS, EFFORT // sum(map(len, rows))))


def _number(rows: Iterable[Sequence[_Item]]) -> None:
    for row in rows:
        for place, item in enumerate(row):
            item.place = place


def _mean(neighbours: Sequence[_Item], usual: float) -> float:
    return sum(each.place for each in neighbours) / len(neighbours) if neighbours else usual


def _crossings(rows: Sequence[Sequence[_Item]]) -> int:
    """Return the number of edges between neighbouring rows that cross: the inversions of their lower ends."""
    found = 0
    for row in rows:
        seen: list[int] = []
        for item in row:
            ends = sorted(below.place for below in item.below)
            found += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return found


# ---------------------------------------------------------------- places


def _align(rows: Sequence[Sequence[_Item]]) -> None:
    """Bring every item near to the mean of its neighbours, and keep the order and the gaps of its row."""
    for row in rows:
        x = 0.0
        for item in row:
            x += item.width / 2 + item.gap
            item.x = x
            x += item.width / 2 + item.gap
        for item in row:
            item.x -= x / 2
    sweeps = 2 * _sweeps(rows)
    for sweep in range(sweeps):
        both = sweep >= sweeps - 4
        down = sweep % 2 == 0
        for row in rows if down else list(reversed(rows)):
            wanted, weights = [], []
            for item in row:
                neighbours = [*item.above, *item.below] if both else item.above if down else item.below
                pulls = [(_pull(item, each), each.x) for each in neighbours]
                total = sum(pull for pull, _ in pulls)
                wanted.append(sum(pull * x for pull, x in pulls) / total if total else item.x)
                weights.append(total or 0.1)
            for item, x in zip(row, _nearest(row, wanted, weights), strict=True):
                item.x = x


def _pull(one: _Item, other: _Item) -> float:
    """Return the weight of a neighbour: boxes in a chain and lanes stay straight, and a lane begins aside."""
    lanes = (one.node is None) + (other.node is None)
    return (6.0, 0.5, 6.0)[lanes]


def _nearest(row: Sequence[_Item], wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the places nearest to the wanted ones at which no two items of a row come too near."""
    offsets = [0.0]
    for one, other in itertools.pairwise(row):
        offsets.append(offsets[-1] + one.width / 2 + one.gap + other.gap + other.width / 2)
    pools: list[tuple[float, float, int]] = []  # mean, weight and number of items
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        mean, total, count = want - offset, weight, 1
        while pools and pools[-1][0] > mean:
            before, more, many = pools.pop()
            mean, total, count = (before * more + mean * total) / (more + total), more + total, many + count
        pools.append((mean, total, count))
    means = [mean for mean, _, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _tops(rows: Sequence[Sequence[_Item]]) -> list[tuple[float, float]]:
    """Return the top and the bottom of each row."""
    tops, y = [], 0.0
    for row in rows:
        high = max(item.height for item in row)
        tops.append((y, y + high))
        y += high + DOWN
    return tops


# ---------------------------------------------------------------- columns and edges


def _in_columns(
    rows: Sequence[Sequence[_Item]], chains: Sequence[Sequence[_Item]], tops: Sequence[tuple[float, float]]
) -> Placed:
    """Return the boxes and edges with their places, in several columns if they are tall and can be cut."""
    first = _first_rows(rows, tops)
    shift: dict[int, tuple[float, float]] = {}
    edges, x, high = [], 0.0, 0.0
    for begin, end in zip(first, [*first[1:], len(rows)], strict=True):
        inside = [item for row in rows[begin:end] for item in row]
        left = min(item.x - item.width / 2 for item in inside)
        right = max(item.x + item.width / 2 for item in inside)
        shift |= dict.fromkeys(range(begin, end), (x - left, -tops[begin][0]))
        edges.append(x + right - left + BETWEEN / 2)
        x += right - left + BETWEEN
        high = max(high, tops[end - 1][1] - tops[begin][0])
    column = {row: place for place, begin in enumerate(first) for row in range(begin, len(rows))}
    spots: dict[int, Spot] = {}
    row_of: dict[int, int] = {}
    for at, row in enumerate(rows):
        right, down = shift[at]
        for item in row:
            row_of[id(item)] = at
            if item.node is not None:
                y = (tops[at][0] + tops[at][1] - item.height) / 2 + down
                spot = Spot(item.node, item.x - item.width / 2 + right, y, item.width, item.height, item.inner)
                spots[id(item)] = spot
    ways = []
    ports = _ports(chains)
    for number, chain in enumerate(chains):
        begin, end = row_of[id(chain[0])], row_of[id(chain[-1])]
        start, stop = spots[id(chain[0])], spots[id(chain[-1])]
        leaves, enters = _leaving(start, ports[number, 0]), _entering(stop, ports[number, 1])
        if column[begin] != column[end]:
            lane = edges[column[begin]]
            low, top = leaves[1] + DOWN / 2, enters[1] - DOWN / 2
            corners = (leaves, (leaves[0], low), (lane, low), (lane, top), (enters[0], top), enters)
            ways.append(Way(corners, straight=True))
            continue
        right, down = shift[begin]
        points = [leaves, (leaves[0], tops[begin][1] + down)]
        for lane_item in chain[1:-1]:
            upper, lower = tops[row_of[id(lane_item)]]
            points += [(lane_item.x + right, upper + down), (lane_item.x + right, lower + down)]
        points += [(enters[0], tops[end][0] + down), enters]
        ways.append(Way(tuple(points)))
    return Placed(tuple(spots.values()), tuple(ways), x - BETWEEN, high)


def _first_rows(rows: Sequence[Sequence[_Item]], tops: Sequence[tuple[float, float]]) -> list[int]:
    """Return the rows with which columns begin: a new one where a single edge leads from a box to a box."""
    high = tops[-1][1]
    if high <= TALL:
        return [0]
    wide = max(max(item.x + item.width / 2 for item in row) for row in rows) + BETWEEN
    columns = max(1, round(math.sqrt(SHARE * high / wide)))
    first = [0]
    for at in range(1, len(rows)):
        above, below = rows[at - 1], rows[at]
        single = len(above) == len(below) == 1 and above[0].node is not None and below[0].node is not None
        done, left = tops[at][0] - tops[first[-1]][0], high - tops[at][0]
        if single and done >= high / columns - DOWN and left > LEAST * high / columns:
            first.append(at)
    return first


def _ports(chains: Sequence[Sequence[_Item]]) -> dict[tuple[int, int], float]:
    """Return by number of the edge and end, 0 for the upper one, its place among those of its box, from -1 to 1."""
    groups: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    for number, chain in enumerate(chains):
        groups[id(chain[0]), 0].append((chain[1].x, number))
        groups[id(chain[-1]), 1].append((chain[-2].x, number))
    found = {}
    for (_, end), edges in groups.items():
        for place, (_, number) in enumerate(sorted(edges)):
            found[number, end] = (2 * place - (len(edges) - 1)) / len(edges)
    return found


def _leaving(spot: Spot, port: float) -> tuple[float, float]:
    if spot.node.kind in {BEGIN, SUM}:
        return (spot.middle, spot.y + spot.height)
    return (spot.middle + port * min(spot.width / 2 - PAD, 30), spot.y + spot.height)


def _entering(spot: Spot, port: float) -> tuple[float, float]:
    """Return the point at which an edge ends: on the circle of a sum, else on the upper side of a box."""
    if spot.node.kind == SUM:
        radius = spot.width / 2
        aside = port * radius
        return (spot.middle + aside, spot.y + radius - math.sqrt(radius**2 - aside**2))
    if spot.node.kind == BEGIN:
        return (spot.middle, spot.y)
    return (spot.middle + port * min(spot.width / 2 - PAD, 30), spot.y)
