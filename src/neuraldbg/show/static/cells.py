"""Cells over steps: where columns stand, the map of their colours with its bar, and the ground of what was not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.patches import Patch

from neuraldbg.show.axes.gaps import drawn_until
from neuraldbg.show.static.axis import LABEL_PT, ROOMY_IN, TICK_PT, name_axis, page, plainly
from neuraldbg.show.static.labels import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

    from neuraldbg.show.forms import Floats, Ints, Scale
    from neuraldbg.show.static.theme import Theme

DARKEST = 0.1
"""Share of the colour map at which it begins."""
UNREAD_HATCH = "////"
NARROW_RANGE = 30.0
"""A log scale that spans less has numbers at four places, since few powers of ten or none lie within."""


def laid_out(steps: Ints, width: Ints, end: int | None = None) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Return the borders of columns and gaps side by side up to ``end``, and the column of each, -1 for a gap."""
    ends = drawn_until(steps, width, end) - 0.5
    borders = np.append(np.column_stack([steps - 0.5, ends]).ravel(), max(ends[-1], (end or 0) - 0.5))
    which = np.column_stack([np.arange(len(steps)), np.full(len(steps), -1)]).ravel()
    keep = np.diff(borders) > 0
    return np.append(borders[:-1][keep], borders[-1]), which[keep]


def colour_map(theme: Theme) -> ListedColormap:
    """Return the map without its darkest end, which is for zero alone."""
    return ListedColormap(mpl.colormaps[theme.cells](np.linspace(DARKEST, 1, 256)))


def unread(axes: Axes, spans: Sequence[tuple[float, float]], theme: Theme, label: str = "not read") -> Patch:
    """Draw the background of unread steps; return its key for the legend."""
    ground, lines = theme.unread
    look: dict[str, Any] = {"facecolor": ground, "edgecolor": lines, "hatch": UNREAD_HATCH, "linewidth": 0}
    for first, last in spans:
        axes.axvspan(first, last, zorder=0, **look)
    return Patch(label=label, **look)


def colour_bar(axes: Axes, mesh: QuadMesh, scale: Scale, theme: Theme) -> None:
    """Draw the colour bar to the right of the cells, or above them in a narrow picture."""
    wide = page(axes).get_figwidth() >= ROOMY_IN
    place: dict[str, Any] = {"location": "right", "aspect": 30} if wide else {"location": "top", "aspect": 40}
    bar = page(axes).colorbar(mesh, ax=axes, pad=0.02, **place)
    name_axis(bar.ax, "y" if wide else "x", scale)
    for label in (bar.ax.xaxis.label, bar.ax.yaxis.label):
        label.set(color=theme.ink, fontsize=LABEL_PT)
    bar.ax.tick_params(which="both", colors=theme.ink, labelcolor=theme.ink, labelsize=TICK_PT)
    bar.outline.set_edgecolor(theme.muted)
    low, high = mesh.get_clim()
    if isinstance(mesh.norm, LogNorm) and low and high and high / low < NARROW_RANGE:
        bar.minorticks_off()
        ticks = np.geomspace(low, high, 4).tolist()
        bar.set_ticks(ticks, labels=[literal(plainly(tick)) for tick in ticks])
