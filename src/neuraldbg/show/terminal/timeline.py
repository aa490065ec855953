"""A timeline of one step as text: a row for the step and one for each layer, a sign for what ran in each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from neuraldbg.show.axes.ticks import Axis
from neuraldbg.show.terminal.frame import in_runs, kept_told, labels, named, ruler, signs_told, worst

if TYPE_CHECKING:
    from neuraldbg.show.forms import Timeline
    from neuraldbg.show.terminal.marks import Marks

STYLES = ("blue", "yellow", "magenta", "cyan", "")
"""Style of each part, in turn; its sign tells parts apart where there is no colour."""


def drawn(view: Timeline, width: int, height: int | None, marks: Marks) -> list[Text]:
    """Return the rows, top to bottom in the order of the first call, and below them the time and the signs."""
    strong = [i for i, layer in enumerate(view.layers) if layer is not None and layer in view.guilty]
    names = labels(view.rows, [view.rows[i] for i in strong], width, marks)
    left = max((name.cell_len for name in names), default=0)
    cells = max(4, width - left - 1)
    axis = Axis(0.0, view.end or 1.0)

    def at(time: float) -> int:
        return round(time / axis.high * (cells - 1))

    signs = [(_sign(i, marks), STYLES[i % len(STYLES)]) for i in range(len(view.parts))]
    below = [
        *ruler(at, axis, cells, left, named(view.scale), marks, whole=False),
        *signs_told([f"{sign * 2} {part}" for (sign, _), part in zip(signs, view.parts, strict=True)], width, marks),
    ]
    room = len(names) if height is None else max(1, height - len(below))
    sizes = np.where([layer is None for layer in view.layers], np.inf, view.lengths)
    kept = worst(view.rows, (), sizes, room)
    if len(kept) < len(names):
        kept = worst(view.rows, (), sizes, max(1, room - 1))
        below += kept_told(len(kept), len(names), (), width, marks)
    rows = [[(" ", "")] * cells for _ in view.rows]
    for span in view.spans:
        first = min(int(span.start / axis.high * cells), cells - 1)
        last = max(first + 1, min(cells, round(span.end / axis.high * cells)))
        rows[span.row][first:last] = [signs[span.part]] * (last - first)
    edge = Text(marks.edge, "dim")
    return [*(names[i] + edge + in_runs(rows[i]) for i in kept), *below]


def _sign(part: int, marks: Marks) -> str:
    """Return the sign of a part; with more parts than fills, a letter."""
    return marks.fills[part] if part < len(marks.fills) else "abcdefgh"[part - len(marks.fills)]
