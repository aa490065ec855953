"""Layers by steps as coloured cells; unread, non-finite and exactly zero cells have a look that no colour has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm, Normalize, SymLogNorm
from matplotlib.patches import Patch

from neuraldbg.show.forms import STEPS, Heat
from neuraldbg.show.static.axis import dress, legend, name_axis, whole_steps
from neuraldbg.show.static.cells import colour_bar, colour_map, laid_out, unread
from neuraldbg.show.static.form import Form
from neuraldbg.show.static.marks import DASHES, draw_lane, draw_moments, stacked
from neuraldbg.show.static.rows import fitting_height, name_rows

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

    from neuraldbg.show.forms import Bools, Floats
    from neuraldbg.show.static.theme import Theme

BAD_HATCH = "xxxx"


def size(view: Heat) -> tuple[float, float]:
    """Return a size at which every row is seen."""
    return 10.0, fitting_height(len(view.layers), 0.2, 10.0)


def draw(figure: Figure, view: Heat, theme: Theme) -> None:
    """Draw the cells at their true steps, the colour bar, the marks and the legend."""
    axes, lane, rows = stacked(figure, view.marks)
    edges, which = laid_out(view.steps, view.width, view.end)
    axes.set_xlim(*_limits(view, edges))
    values = _columns(np.where(np.isfinite(view.values), view.values, np.nan), which, np.nan)
    read = _columns(view.nonfinite, which, 0) | np.isfinite(values)
    keys: list[Any] = []
    if not read.all():
        keys.append(unread(axes, [(edges[0], edges[-1])], theme))
    mesh, zeros = _cells(axes, view, edges, values, theme)
    if zeros:
        keys.append(Patch(facecolor=theme.zero, edgecolor=theme.muted, label="exactly 0"))
    if view.nonfinite.any():
        keys.append(_nonfinite(axes, _columns(view.nonfinite, which, 0), edges, theme))
    dress(axes, theme, grid="")
    axes.set_ylim(len(view.layers) - 0.5, -0.5)
    name_axis(axes, "x", STEPS)
    whole_steps(axes)
    if np.isfinite(values).any():
        colour_bar(axes, mesh, view.scale, theme)
    legend(axes, theme, keys, below=True) if keys else None
    draw_moments((axes,) if lane is None else (lane, axes), view.marks, theme)
    if lane is not None:
        draw_lane(lane, rows, theme)
    name_rows(axes, view.layers, view.guilty, theme)


def _columns(cells: npt.NDArray[Any], which: npt.NDArray[np.intp], gap: float) -> npt.NDArray[Any]:
    """Give every border-to-border stretch its column of cells, shape (R, stretches)."""
    stretched: npt.NDArray[Any] = cells[:, which]
    stretched[:, which < 0] = gap
    return stretched


def _limits(view: Heat, edges: Floats) -> tuple[float, float]:
    """Return the range of the steps that were read, with moments that follow soon after."""
    span = edges[-1] - edges[0]
    near = [mark.step for mark in view.marks if mark.role in DASHES and abs(mark.step - edges[-1]) < 0.05 * span]
    return float(edges[0]), float(max([edges[-1], *(step + 0.01 * span for step in near)]))


def _cells(axes: Axes, view: Heat, edges: Floats, values: Floats, theme: Theme) -> tuple[QuadMesh, bool]:
    """Draw the cells that have a colour. Return them, and True if a log scale has no place for some zeros."""
    norm = _norm(values, log=view.scale.log)
    colours = colour_map(theme).with_extremes(under=theme.zero)
    zeros = isinstance(norm, LogNorm) and bool((values == 0).any())
    if zeros:  # below the least of all the others, where the map says so
        values = np.where(values == 0, np.nanmin(values[values > 0]) / 10, values)
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


FORM = Form(Heat, size, draw)
