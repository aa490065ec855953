"""Series over steps as text: curves of dots (of letters in ASCII), each with its letter at some points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from neuraldbg.show.axes.downsample import thinned
from neuraldbg.show.axes.ticks import Axis, axis_of
from neuraldbg.show.format.safe_text import GUILTY
from neuraldbg.show.terminal.canvas import Canvas
from neuraldbg.show.terminal.frame import (
    cut,
    lane,
    marks_told,
    named,
    padded,
    quantity,
    ruler,
    safe,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.show.forms import Floats, Ints, Line, Lines, Scale
    from neuraldbg.show.terminal.marks import Marks

NAMED = 8
"""With more lines than this only those of guilty layers, the first and the last are named; the rest is a crowd."""
STYLES = ("blue", "green", "magenta", "cyan", "yellow", "bright_blue", "bright_green", "bright_magenta")
STRONG = "bold red"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TALLEST, LEAST = 20, 4
"""Height of the canvas in lines: the default, and the least."""
POINTS_EACH = 8
"""Values of a line drawn in a column of cells: of more, the least and the largest of each stretch."""
Y_TICKS_EVERY = 4
TICK_WIDTH = 8


@dataclass(frozen=True)
class Pen:
    """A line with the letter and style in which it is drawn."""

    line: Line
    letter: str
    style: str
    named: bool = True


def drawn(view: Lines, width: int, height: int | None, marks: Marks) -> list[Text]:
    """Return the curves with the lane of marks above, steps, names and signs below."""
    pens = _pens(view)
    up = axis_of([part for line in view.lines for part in _parts(line)], log=view.y.log)
    last = [np.array([view.end - 1])] if view.end else []
    across = axis_of([*(line.steps for line in view.lines), *last])
    left = TICK_WIDTH
    cells = width - left - 1
    x = _Columns(across, cells)
    above = [
        *lane(view.marks, x.at, cells, left, marks),
        *_bad_lane([line.nonfinite for line in view.lines if line.nonfinite is not None], x, left, marks),
    ]
    below = [
        *ruler(x.at, across, cells, left, named(view.x), marks),
        *wrapped(f"{' ' * (left - 1)}{marks.edge} {named(view.y)}", width, "dim", marks, hang=left + 1),
        *_names(pens, view, width, marks),
        *marks_told(view.marks, width, marks),
    ]
    tall = min(TALLEST, max(8, width // 5)) if height is None else max(LEAST, height - len(above) - len(below))
    canvas = Canvas(cells, tall, marks)
    for pen in sorted(pens, key=lambda pen: (pen.named, pen.style == STRONG)):
        line = thinned(pen.line, POINTS_EACH * cells)
        canvas.line(line.steps, line.values, across, up, pen.letter, pen.style)
    for pen in pens:
        line = thinned(pen.line, POINTS_EACH * cells)
        if line.low is not None and line.high is not None and (len(pens) == 1 or pen.style == STRONG):
            canvas.band(line.steps, line.low, line.high, across, up, "dim")
    if len(pens) > 1:
        canvas.name_lines([pen.letter for pen in pens if pen.named])
    for mark in view.marks:
        if mark.role in ("failure", "chosen") and across.low <= mark.step <= across.high:
            canvas.upright(mark.step, across, marks.gap, "dim")
    return [*above, *beside(canvas.rows(), up, view.y, marks), *below]


def beside(rows: Sequence[Text], up: Axis, scale: Scale, marks: Marks, width: int = TICK_WIDTH) -> list[Text]:
    """Return the rows of a canvas with the numbers of the axis on their left."""
    tall = len(rows)
    ticks = up.ticks(max(2, tall // Y_TICKS_EVERY))
    if len(ticks) < 2:
        ticks = [up.low, up.high]
    places = tall - 1 - up.place(np.array(ticks), tall)
    told = dict(zip(places.tolist(), ticks, strict=True))
    found = []
    for r, row in enumerate(rows):
        label = quantity(told[r], scale) if r in told else ""
        if cell_len(label) > width:  # a number that is cut is another number
            label = f"{told[r]:.2g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
        found.append(Text(padded(label, width, marks, right=True) + marks.edge, "dim") + row)
    return found


class _Columns:
    """The mapping from steps to the cells of a line."""

    def __init__(self, across: Axis, cells: int) -> None:
        self._across, self._cells = across, cells

    def at(self, step: float) -> int:
        """Return its cell; outside of 0 to cells - 1 if it is not shown."""
        if step < self._across.low:
            return -1
        return self._cells if step > self._across.high else int(self._across.place(np.array([step]), self._cells)[0])


def _pens(view: Lines) -> list[Pen]:
    crowd = len(view.lines) > NAMED
    pens: list[Pen] = []
    count = 0
    for i, line in enumerate(view.lines):
        guilty = line.layer is not None and line.layer in view.guilty
        if crowd and not guilty and i not in (0, len(view.lines) - 1):
            pens.append(Pen(line, ".", "dim", named=False))
            continue
        style = STRONG if guilty else STYLES[count % len(STYLES)]
        pens.append(Pen(line, LETTERS[count % len(LETTERS)] if len(view.lines) > 1 else "*", style))
        count += 1
    return pens


def _parts(line: Line) -> list[Floats]:
    return [part for part in (line.values, line.low, line.high) if part is not None]


def _names(pens: Sequence[Pen], view: Lines, width: int, marks: Marks) -> list[Text]:
    """Return the legend: the name of each letter, with the range and the last value, a line each."""
    found = []
    for pen in pens:
        if pen.named:
            letter = f"{pen.letter} " if len(pens) > 1 else ""
            told = _told(pen.line, view.y, marks) + (f"  {marks.guilty}" if pen.style == STRONG else "")
            name = cut(safe(pen.line.name, marks), max(8, width - cell_len(told) - 4), marks)
            line = Text.assemble((letter, f"bold {pen.style}"), name, (f"  {told}", "dim"))
            found.append(line if line.cell_len <= width else Text(cut(line.plain, width, marks)))
    if any(pen.style == STRONG for pen in pens):
        found.append(Text(f"{marks.guilty} {GUILTY}", "dim"))
    others = sum(not pen.named for pen in pens)
    if others:
        found.append(Text(f". {others} other lines, not named", "dim"))
    return found


def _told(line: Line, scale: Scale, marks: Marks) -> str:
    finite = np.concatenate([part[np.isfinite(part)] for part in _parts(line)])
    if not len(finite):
        return "no finite value"
    last = np.flatnonzero(np.isfinite(line.values))[-1:]
    low, high = quantity(float(finite.min()), scale), quantity(float(finite.max()), scale)
    words = f"{low} {marks.span} {high}" + "".join(
        f", {quantity(float(line.values[at]), scale)} at step {line.steps[at]:,}" for at in last.tolist()
    )
    lost = int((finite <= 0).sum()) if scale.log else 0
    return words + (f", {lost:,} of 0 or less not shown" if lost else "")


def _bad_lane(found: Sequence[Ints], x: _Columns, left: int, marks: Marks) -> list[Text]:
    """Return a line that marks steps with NaN or infinite values."""
    cells = sorted({x.at(step) for steps in found for step in np.unique(steps).tolist()})
    if not cells:
        return []
    row = [" "] * (max(cells) + 1)
    for cell in cells:
        if cell >= 0:
            row[cell] = marks.bad
    return [Text(padded("NaN, inf", left, marks, right=True) + " ", "dim") + Text("".join(row), "bold red")]
