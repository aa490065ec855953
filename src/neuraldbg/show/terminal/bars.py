"""Values of each layer as text: a bar a layer, or one for each group, with the number beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from neuraldbg.show.axes.ticks import Axis, axis_of
from neuraldbg.show.format.safe_text import GUILTY
from neuraldbg.show.terminal.frame import (
    in_runs,
    kept_told,
    labels,
    marks_told,
    named,
    padded,
    quantity,
    safe,
    signs_told,
    worst,
)

if TYPE_CHECKING:
    from neuraldbg.show.forms import Bars
    from neuraldbg.show.terminal.marks import Marks

STYLES = ("blue", "yellow", "magenta", "cyan")


def drawn(view: Bars, width: int, height: int | None, marks: Marks) -> list[Text]:
    """Return the bars, top to bottom in data-flow order, and below them the legend of limits and groups."""
    below = _signs(view, width, marks)
    each = 1 if view.stacked else max(1, len(view.bars))
    room = len(view.layers) if height is None else max(1, (height - len(below)) // each)
    values = np.array([bar.values for bar in view.bars], np.float64).reshape(len(view.bars), len(view.layers))
    values = view.sums[None, :] if view.stacked else values
    sizes = np.fmax.reduce(np.where(np.isnan(values), -np.inf, np.abs(values)), axis=0, initial=-np.inf)
    kept = worst(view.layers, view.guilty, sizes, room)
    if len(kept) < len(view.layers):
        kept = worst(view.layers, view.guilty, sizes, max(1, (room * each - 1) // each))
        below = [*below, *kept_told(len(kept), len(view.layers), view.guilty, width, marks)]
    names = labels(view.layers, view.guilty, width, marks)
    left = max((name.cell_len for name in names), default=0)
    told = [[_told(value, view, marks, i) for i, value in enumerate(row)] for row in values]
    wide = max((cell_len(words) for row in told for words in row), default=0)
    wide = min(wide, max(8, (width - left) // 2))
    cells = max(4, width - left - wide - 2)
    axis = _axis(view)
    stops = axis.place(np.array([value for _, value in view.limits]), cells).tolist()
    found = []
    for i in kept:
        if view.stacked:
            drawing = _stack([float(bar.values[i]) for bar in view.bars], axis, cells, marks)
            number = padded(told[0][i], wide, marks, right=True)
            found.append(names[i] + Text(marks.edge, "dim") + drawing + Text(f" {number}"))
            continue
        for group, bar in enumerate(view.bars):
            name = names[i] if group == 0 else Text(" " * left)
            drawing = _bar(float(bar.values[i]), axis, cells, group, stops, marks)
            number = padded(told[group][i], wide, marks, right=True)
            found.append(name + Text(marks.edge, "dim") + drawing + Text(f" {number}"))
    return [*found, *below]


def _axis(view: Bars) -> Axis:
    """Return an axis from 0 if it is linear, else from below the least value, so that it still has a bar."""
    limits = np.array([value for _, value in view.limits])
    drawn = [view.sums] if view.stacked else [bar.values for bar in view.bars]
    axis = axis_of([*drawn, limits], log=view.scale.log)
    if view.scale.log:
        return Axis(axis.low / (axis.high / axis.low) ** 0.1, axis.high, log=True)
    low, high = min(0.0, axis.low), max(0.0, axis.high)
    return Axis(low, high if high > low else 1.0)


def _bar(value: float, axis: Axis, cells: int, group: int, stops: list[int], marks: Marks) -> Text:
    """Return one bar from 0 to its value, with limits visible in the empty part."""
    row = [(" ", "")] * cells
    (end,) = axis.place(np.array([value]), cells).tolist()
    start = 0 if axis.log else int(axis.place(np.zeros(1), cells)[0])
    if np.isinf(value):
        row[0] = (marks.bad, "bold red")
    elif end >= 0 and value:
        low, high = min(start, end), max(start, end)
        row[low : high + 1] = [(marks.fills[group % len(marks.fills)], STYLES[group % len(STYLES)])] * (high + 1 - low)
    for stop in stops:
        if stop >= 0:
            row[stop] = (marks.limit, "bold red") if row[stop][0] == " " else (row[stop][0], "red")
    return in_runs(row)


def _stack(values: list[float], axis: Axis, cells: int, marks: Marks) -> Text:
    """Return the parts of a sum one behind the other; the cell that two parts share is that of the larger share."""
    row = [(" ", "")] * cells
    start = 0.0
    for group, value in enumerate(values):
        if not np.isfinite(value) or value <= 0:
            continue
        first, last = (round(end / axis.high * cells) for end in (start, start + value))
        look = (marks.fills[group % len(marks.fills)], STYLES[group % len(STYLES)])
        last = max(last, 1) if not start else last  # the least of sums is still seen
        row[first:last] = [look] * (min(last, cells) - first)
        start += value
    return in_runs(row[:cells])


def _told(value: float, view: Bars, marks: Marks, row: int) -> str:
    if np.isnan(value):
        return f"{marks.unread} {view.missing}"
    return safe(view.words[row], marks) if view.words else quantity(value, view.scale)


def _signs(view: Bars, width: int, marks: Marks) -> list[Text]:
    told = [named(view.scale) + (f", step {view.step:,}" if view.step is not None else "")]
    if len(view.bars) > 1:
        told += [f"{marks.fills[i % len(marks.fills)] * 2} {bar.name}" for i, bar in enumerate(view.bars)]
    told += [f"{marks.limit} {name} {quantity(value, view.scale)}" for name, value in view.limits]
    told += [f"{marks.guilty} {GUILTY}"] * bool(view.guilty)
    return [*signs_told(told, width, marks), *marks_told(view.marks, width, marks)]
