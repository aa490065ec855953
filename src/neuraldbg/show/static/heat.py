"""Layers by steps as coloured cells; what no colour can say, not read, not finite or exactly zero, has a look of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap, LogNorm, Normalize, SymLogNorm
from matplotlib.patches import Patch, Rectangle

from neuraldbg.show.static.axis import LABEL_PT, ROOMY_IN, TICK_PT, dress, legend, named, plainly, whole_steps
from neuraldbg.show.static.form import Form
from neuraldbg.show.static.labels import literal
from neuraldbg.show.static.marks import DASHES, draw_lane, draw_moments, stacked
from neuraldbg.show.static.rows import fitting_height, name_rows
from neuraldbg.show.views.view import STEPS, Heat

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

    from neuraldbg.show.static.theme import Theme
    from neuraldbg.show.views.view import Bools, Floats, Ints

VISIBLE = 250
"""A column is drawn at least as wide as this part of all the steps, as far as the next one leaves room: a step of many
thousands would be narrower than a dot."""
DARKEST = 0.1
"""Where the map of colours begins."""
UNREAD_HATCH, BAD_HATCH = "////", "xxxx"


def size(view: Heat) -> tuple[float, float]:
    """Return a size at which every row is seen."""
    return 10.0, fitting_height(len(view.layers), 0.2, 10.0)


def draw(figure: Figure, view: Heat, theme: Theme) -> None:
    """Draw the cells at their true steps, the colour bar, the marks and what the looks mean."""
    axes, lane, rows = stacked(figure, view.marks)
    edges, which = laid_out(view.steps, view.width)
    axes.set_xlim(*_limits(view, edges))
    values = _columns(np.where(np.isfinite(view.values), view.values, np.nan), which, np.nan)
    read = _columns(view.nonfinite, which, False) | np.isfinite(values)
    keys: list[Any] = []
    if not read.all():
        keys.append(_unread(axes, len(view.layers), edges, theme))
    mesh, zeros = _cells(axes, view, edges, values, theme)
    if zeros:
        keys.append(Patch(facecolor=theme.zero, edgecolor=theme.muted, label="exactly 0"))
    if view.nonfinite.any():
        keys.append(_nonfinite(axes, _columns(view.nonfinite, which, False), edges, theme))
    dress(axes, theme, grid="")
    name_rows(axes, view.layers, view.guilty, theme)
    axes.set_xlabel(named(STEPS))
    whole_steps(axes)
    _colour_bar(figure, axes, mesh, view, theme)
    legend(axes, theme, keys, below=True) if keys else None
    draw_moments((axes,) if lane is None else (lane, axes), view.marks, theme)
    if lane is not None:
        draw_lane(lane, rows, theme)


def laid_out(steps: Ints, width: Ints) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Return the borders of what is drawn side by side, and which column each is, -1 for the gap between two."""
    start = steps - 0.5
    end = start + width
    least = (end[-1] - start[0]) / VISIBLE
    end = np.minimum(np.maximum(end, start + least), np.append(start[1:], np.inf))
    borders = np.column_stack([start, end]).ravel()
    which = np.column_stack([np.arange(len(steps)), np.full(len(steps), -1)]).ravel()[:-1]
    keep = np.diff(borders) > 0
    return np.append(borders[:-1][keep], borders[-1]), which[keep]


def _columns(cells: npt.NDArray[Any], which: npt.NDArray[np.intp], gap: object) -> npt.NDArray[Any]:
    """Give every border-to-border stretch its column of cells, shape (R, stretches)."""
    return np.where(which[None, :] >= 0, cells[:, which], gap)


def _limits(view: Heat, edges: Floats) -> tuple[float, float]:
    """The steps that were read, and moments that follow soon after."""
    span = edges[-1] - edges[0]
    near = [mark.step for mark in view.marks if mark.role in DASHES and abs(mark.step - edges[-1]) < 0.05 * span]
    return float(edges[0]), float(max([edges[-1], *(step + 0.01 * span for step in near)]))


def _unread(axes: Axes, rows: int, edges: Floats, theme: Theme) -> Patch:
    ground, lines = theme.unread
    look: dict[str, Any] = {"facecolor": ground, "edgecolor": lines, "hatch": UNREAD_HATCH, "linewidth": 0}
    axes.add_patch(Rectangle((edges[0], -0.5), edges[-1] - edges[0], rows, zorder=0, **look))
    return Patch(label="not read", **look)


def _cells(axes: Axes, view: Heat, edges: Floats, values: Floats, theme: Theme) -> tuple[QuadMesh, bool]:
    """The cells that have a colour, and whether zeros are among them that a log scale cannot place."""
    norm = _norm(values, log=view.scale.log)
    colours = colour_map(theme).with_extremes(under=theme.zero)
    zeros = isinstance(norm, LogNorm) and bool((values == 0).any())
    if isinstance(norm, LogNorm):
        values = np.where(values == 0, norm.vmin / 10, values)
    mesh = axes.pcolormesh(
        edges,
        np.arange(len(view.layers) + 1) - 0.5,
        np.ma.masked_invalid(values),
        norm=norm,
        cmap=colours,
        rasterized=True,  # thousands of cells would make a drawing of megabytes
        zorder=1,
    )
    return mesh, zeros


def colour_map(theme: Theme) -> ListedColormap:
    """Return the map without its darkest end, which is for zero alone."""
    return ListedColormap(mpl.colormaps[theme.cells](np.linspace(DARKEST, 1, 256)))


def _norm(values: Floats, *, log: bool) -> Normalize:
    known = values[np.isfinite(values)]
    if not len(known):
        return Normalize(0, 1)
    if log and (known > 0).any() and known.min() >= 0:
        known = known[known > 0]
        low, high = float(known.min()), float(known.max())
        return LogNorm(low, high) if high > low else LogNorm(low / 2, high * 2)
    low, high = float(known.min()), float(known.max())
    if log and (known != 0).any():
        return SymLogNorm(float(np.quantile(np.abs(known[known != 0]), 0.1)), vmin=low, vmax=high)
    around = 0.5 * abs(low) or 0.5
    return Normalize(low, high) if high > low else Normalize(low - around, high + around)


def _nonfinite(axes: Axes, cells: Bools, edges: Floats, theme: Theme) -> Patch:
    """Cells in a row that touch each other are one patch."""
    framed = np.pad(cells, ((0, 0), (1, 1)))
    rows, first = np.nonzero(framed[:, 1:] & ~framed[:, :-1])
    _, last = np.nonzero(~framed[:, 1:] & framed[:, :-1])
    left, right, top = edges[first], edges[last], rows - 0.5
    corners = np.stack(
        [np.stack(pair, axis=1) for pair in ((left, top), (right, top), (right, top + 1), (left, top + 1))], axis=1
    )
    look: dict[str, Any] = {"facecolor": theme.bad, "edgecolor": theme.zero, "hatch": BAD_HATCH, "linewidth": 0}
    axes.add_collection(PolyCollection(list(corners), zorder=2, **look), autolim=False)
    return Patch(label="NaN or Inf", **look)


def _colour_bar(figure: Figure, axes: Axes, mesh: QuadMesh, view: Heat, theme: Theme) -> None:
    if mesh.get_array().count() == 0:
        return
    place: dict[str, Any] = {"location": "right", "pad": 0.02, "aspect": 30}
    if figure.get_figwidth() < ROOMY_IN:
        place = {"location": "top", "pad": 0.02, "aspect": 40}
    bar = figure.colorbar(mesh, ax=axes, **place)
    bar.set_label(named(view.scale), color=theme.ink, fontsize=LABEL_PT)
    bar.ax.tick_params(which="both", colors=theme.ink, labelcolor=theme.ink, labelsize=TICK_PT)
    bar.outline.set_edgecolor(theme.muted)
    if isinstance(mesh.norm, LogNorm) and mesh.norm.vmax / mesh.norm.vmin < 30:
        bar.minorticks_off()
        ticks = np.geomspace(mesh.norm.vmin, mesh.norm.vmax, 4)
        bar.set_ticks(ticks, labels=[literal(plainly(tick)) for tick in ticks])


FORM = Form(Heat, size, draw)
