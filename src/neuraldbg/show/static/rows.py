"""Layers down the y axis: as many names as fit, the guilty always, and none upon another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.format.short_names import short_names
from neuraldbg.show.static.axis import TICK_PT, inches, page
from neuraldbg.show.static.labels import POINTS, fitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from neuraldbg.show.static.theme import Theme

SMALL_PT = 6.5
LINE = 1.2
"""Height of a line of text by its size."""
AROUND_IN = 1.6
"""Height in inches of title, x axis, notes and legend together."""
SHARE = 0.3
"""Largest share of a picture's width for the names of layers."""


def fitting_height(rows: int, each_in: float, most_in: float) -> float:
    """Return the height of a picture whose rows are easy to distinguish, as far as a page allows."""
    return min(max(AROUND_IN + each_in * rows, 3.6), most_in)


def name_rows(axes: Axes, layers: Sequence[str], guilty: Sequence[str], theme: Theme) -> None:
    """Name the rows 0, 1, ... from top to bottom; the names of guilty layers are strong. All else is drawn already."""
    room = inches(axes)[1] * POINTS / max(1, len(layers))
    size = TICK_PT if room >= LINE * TICK_PT else SMALL_PT
    every = int(np.ceil(LINE * size / room))
    strong = [row for row, layer in enumerate(layers) if layer in guilty]
    shown = [row for row in range(0, len(layers), every) if all(abs(row - other) >= every for other in strong)]
    kept = shown + [row for i, row in enumerate(strong) if not i or row - strong[i - 1] >= every]
    names = short_names(layers)
    width = SHARE * page(axes).get_figwidth()
    rows = sorted(kept)
    bold = [layers[row] in guilty for row in rows]
    axes.set_yticks(rows, [fitted(names[layers[r]], width, size, bold=b) for r, b in zip(rows, bold, strict=True)])
    axes.tick_params(axis="y", length=0)
    for label, is_bold in zip(axes.get_yticklabels(), bold, strict=True):
        label.set(fontsize=size, color=theme.strong if is_bold else theme.ink)
        label.set_fontweight("bold" if is_bold else "normal")
