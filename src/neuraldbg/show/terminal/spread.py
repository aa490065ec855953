"""The distribution of values over time, as text: histograms as a heat map, or else extremes and mean as curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from neuraldbg.show.axes.ticks import Axis
from neuraldbg.show.forms import Line, Lines
from neuraldbg.show.terminal import lines
from neuraldbg.show.terminal.frame import lane, marks_told, named, padded, quantity, ruler, wrapped
from neuraldbg.show.terminal.heat import Grid, cells

if TYPE_CHECKING:
    from neuraldbg.show.forms import Floats, Spread
    from neuraldbg.show.terminal.marks import Marks

SIGNS = 65
"""Number of columns that the legend of signs needs for one line."""
LEFT = lines.TICK_WIDTH + 3
"""Columns of the numbers beside the map."""
BINS, LEAST = 24, 3
"""Rows of the map: the default, and the least."""


def drawn(view: Spread, width: int, height: int | None, marks: Marks) -> list[Text]:
    """Return the map of shares, the largest values on top, where there are histograms; else the curves."""
    if view.edges is None or view.shares is None:
        return lines.drawn(_curves(view), width, height, marks)
    left = LEFT
    grid = Grid(view.steps, view.width, room(width), view.end)
    above = lane(view.marks, grid.at, grid.cells, left, marks)
    below = [
        *ruler(grid.at, grid.axis, grid.cells, left, "optimizer step", marks),
        *wrapped(f"rows: {named(view.scale)}, each from the number on", width, "dim", marks),
    ]
    told = marks_told(view.marks, width, marks)
    signs = 2 if width < SIGNS else 1
    most = BINS if height is None else max(LEAST, height - len(above) - len(below) - len(told) - signs)
    edges, shares = fewer(view.edges, view.shares, most)
    top = float(np.nanmax(shares)) if np.isfinite(shares).any() else 1.0
    words = f"{marks.levels} 0 to {100 * top:.0f}% of the values in a bin   {marks.unread} no histogram"
    below += [*wrapped(words, width, "dim", marks), *told]
    rows = cells(grid.reduced(shares, "max"), np.zeros((len(shares), grid.cells), bool), Axis(0.0, top or 1.0), marks)
    found = [
        Text(padded(quantity(float(edge), view.scale), left, marks, right=True) + marks.edge, "dim") + row
        for edge, row in zip(edges[:-1], rows, strict=True)
    ]
    return [*above, *found[::-1], *below]


def room(width: int) -> int:
    """Return the cells of a row of the map."""
    return width - LEFT - 1


def fewer(edges: Floats, shares: Floats, most: int) -> tuple[Floats, Floats]:
    """Put neighbouring bins together to at most ``most``; shares are added. Empty bins at both ends are left out."""
    used = np.flatnonzero(np.nan_to_num(shares).max(axis=1, initial=0.0) > 0)
    if len(used):
        shares, edges = shares[used[0] : used[-1] + 1], edges[used[0] : used[-1] + 2]
    each = -(-len(shares) // most)
    starts = np.arange(0, len(shares), each)
    return np.append(edges[starts], edges[-1]), np.add.reduceat(shares, starts, axis=0)


def _curves(view: Spread) -> Lines:
    """Mean with the band between least and largest, one standard deviation above and below it; all break in gaps."""
    gaps = np.zeros(0, np.int64) if view.gaps is None else view.gaps
    steps = np.insert(view.steps, gaps + 1, (view.steps + view.width)[gaps])
    found = (
        ("mean", view.mean),
        ("mean + std", view.mean + view.std),
        ("mean - std", view.mean - view.std),
        ("least", view.low),
        ("largest", view.high),
    )
    return Lines(
        name=view.name,
        title=view.title,
        lines=tuple(Line(name, steps, np.insert(values, gaps + 1, np.nan)) for name, values in found),
        y=view.scale,
        marks=view.marks,
    )
