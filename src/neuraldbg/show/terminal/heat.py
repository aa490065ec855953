"""A heat map as text: a row a layer, a cell a stretch of steps, the more ink the larger the value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from neuraldbg.show.axes.gaps import drawn_until
from neuraldbg.show.axes.ticks import Axis, axis_of
from neuraldbg.show.format.safe_text import GUILTY
from neuraldbg.show.terminal.frame import (
    in_runs,
    kept_told,
    labels,
    lane,
    marks_told,
    named,
    quantity,
    ruler,
    signs_told,
    worst,
)

if TYPE_CHECKING:
    from neuraldbg.show.forms import Bools, Floats, Heat, Ints
    from neuraldbg.show.terminal.marks import Marks

STYLES = ("blue", "blue", "cyan", "cyan", "yellow", "yellow", "red", "red")
"""Style of each level, from cold to hot, in the sixteen colours of the terminal's own theme."""
BAD = "bold reverse red"
ZERO = "0"
"""Sign of a value that has no place on a log scale."""


def drawn(view: Heat, width: int, height: int | None, marks: Marks) -> list[Text]:
    """Return the map with the lane of marks above, steps and signs below."""
    names = labels(view.layers, view.guilty, width, marks)
    left = max((name.cell_len for name in names), default=0)
    grid = Grid(view.steps, view.width, width - left - 1, view.end)
    shown = grid.reduced(view.values, view.reduce)
    bad = grid.reduced(view.nonfinite.astype(np.float64), "max") > 0
    above = lane(view.marks, grid.at, grid.cells, left, marks)
    below = [
        *ruler(grid.at, grid.axis, grid.cells, left, "optimizer step", marks),
        *_signs(view, width, marks, shown, bad),
        *marks_told(view.marks, width, marks),
    ]
    room = len(names) if height is None else max(1, height - len(above) - len(below))
    kept = worst(view.layers, view.guilty, _sizes(shown, bad), room)
    if len(kept) < len(names):
        kept = worst(view.layers, view.guilty, _sizes(shown, bad), max(1, room - 1))
        below = [*below, *kept_told(len(kept), len(view.layers), view.guilty, width, marks)]
    rows = cells(shown[kept], bad[kept], axis_of([view.values], log=view.scale.log), marks)
    edge = Text(marks.edge, "dim")
    return [*above, *(names[i] + edge + row for i, row in zip(kept, rows, strict=True)), *below]


def room(view: Heat, width: int, marks: Marks) -> int:
    """Return the cells of a row."""
    return width - max((name.cell_len for name in labels(view.layers, view.guilty, width, marks)), default=0) - 1


def cells(values: Floats, bad: Bools, axis: Axis, marks: Marks) -> list[Text]:
    """Return each row of values as one sign a value."""
    level = axis.place(values, len(marks.levels))
    signs = [*zip(marks.levels, STYLES, strict=True), (ZERO, "dim")]
    signs += [(marks.bad, BAD), (marks.mixed, BAD), (marks.unread, "dim")]
    zero, not_finite, mixed, unread = range(len(marks.levels), len(signs))
    level = np.where(level < 0, unread, level)
    if axis.log:
        level = np.where(values <= 0, zero, level)
    level = np.where(bad, np.where(np.isfinite(values), mixed, not_finite), level)
    return [in_runs([signs[one] for one in row]) for row in level.tolist()]


class Grid:
    """Columns of a view laid out over the cells of a line, each at its true steps."""

    def __init__(self, steps: Ints, width: Ints, most: int, end: int | None = None) -> None:
        self.first = int(steps[0]) if len(steps) else 0
        self._steps, self._ends = steps, np.ceil(drawn_until(steps, width, end)).astype(np.int64)
        self._span = max(int(self._ends[-1]), end or 0) - self.first if len(steps) else 1
        self.axis = Axis(self.first, self.first + max(1, self._span - 1))
        self.cells = max(1, most // self._span) * self._span if self._span <= most else most

    def at(self, step: float) -> int:
        """Return the cell of a step, the middle one if it has several; outside of 0 to cells - 1 if it is not shown."""
        each = max(1, self.cells // self._span)
        return int((int(step) - self.first) * self.cells // self._span) + (each - 1) // 2

    def reduced(self, values: Floats, how: str) -> Floats:
        """Put columns of shape (R, C) together to (R, cells), by the way in which the view put steps together."""
        found = np.full((len(values), self.cells), np.nan)
        starts = (self._steps - self.first) * self.cells // self._span
        ends = -((self.first - self._ends) * self.cells // self._span)
        ends[:-1] = np.minimum(ends[:-1], starts[1:])  # a column takes no part of the next one's cell
        ends = np.maximum(starts + 1, ends)
        for c, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            here, there = found[:, start:end], values[:, c : c + 1]
            if how == "min":
                found[:, start:end] = np.fmin(here, there)
            elif how in ("mean", "extreme"):  # of several, the one of the largest size: means are not made anew
                found[:, start:end] = np.where(~(np.abs(here) >= np.abs(there)) & ~np.isnan(there), there, here)
            else:
                found[:, start:end] = np.fmax(here, there)
        return found


def _sizes(values: Floats, bad: Bools) -> Floats:
    """Return the importance of each row, shape (R,)."""
    sizes: Floats = np.fmax.reduce(np.where(np.isnan(values), -np.inf, values), axis=1, initial=-np.inf)
    return np.where(bad.any(axis=1), np.inf, sizes)


def _signs(view: Heat, width: int, marks: Marks, shown: Floats, bad: Bools) -> list[Text]:
    finite = view.values[np.isfinite(view.values)]
    told = []
    zeros = view.scale.log and bool((finite <= 0).any())
    finite = finite[finite > 0] if view.scale.log else finite
    if len(finite):
        low, high = quantity(float(finite.min()), view.scale), quantity(float(finite.max()), view.scale)
        told.append(f"{marks.levels} {low} to {high}: {named(view.scale)}")
    told += [f"{ZERO} exactly 0"] * zeros
    there = np.isfinite(shown)
    told += [f"{marks.bad} NaN or infinite"] * bool((bad & ~there).any())
    told += [f"{marks.mixed} NaN or infinite among finite values"] * bool((bad & there).any())
    told += [f"{marks.unread} not read"] * bool((~bad & ~there).any())
    told += [f"{marks.guilty} {GUILTY}"] * bool(view.guilty)
    return signs_told(told, width, marks)
