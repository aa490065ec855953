"""The distribution of the values of one site over time: histograms if the run has them, else a band of moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from neuraldbg.show.forms import STEPS, Scale, Spread
from neuraldbg.show.static.axis import around_zero, dress, legend, name_axis, plainly, whole_steps
from neuraldbg.show.static.cells import colour_bar, colour_map, laid_out, unread
from neuraldbg.show.static.form import Form
from neuraldbg.show.static.marks import draw_lane, draw_moments, stacked

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from neuraldbg.show.forms import Floats
    from neuraldbg.show.static.theme import Theme

SHARES = Scale("share of the values read", "%")
CHANCE = 0.25
"""Usual share of the deviation below which a mean counts as zero."""
WIDE = 1000.0
"""Ratio of the largest size to the usual one, from which the axis is linear near zero and logarithmic further out."""


def size(view: Spread) -> tuple[float, float]:
    """Return a size for a page's width."""
    del view
    return 10.0, 5.0


def draw(figure: Figure, view: Spread, theme: Theme) -> None:
    """Draw the shares of the bins as colours, or the moments as bands; the extremes as lines in both."""
    axes, lane, rows = stacked(figure, view.marks)
    dress(axes, theme)
    _scale(axes, view)
    borders, which = laid_out(view.steps, view.width, view.end)
    keys: list[Artist] = []
    if view.edges is not None and view.shares is not None and np.isfinite(view.shares).any():
        keys = _histograms(axes, view, view.edges, view.shares, theme)
        look: dict[str, Any] = {"edgecolor": theme.ink, "zorder": 3, "baseline": None}
        if not around_zero_by_chance(view):
            axes.stairs(_spread(view.mean, which), borders, linewidth=1.4, label="mean", **look)
        axes.stairs(_spread(view.high, which), borders, linewidth=0.8, ls=":", label="minimum and maximum", **look)
        axes.stairs(_spread(view.low, which), borders, linewidth=0.8, ls=":", label="_", **look)
    else:
        keys = _bands(axes, borders, which, view, theme)
    margin = max(0.0, 0.01 * (borders[-1] - borders[0]))
    axes.set_xlim(borders[0] - margin, borders[-1] + margin)
    name_axis(axes, "x", STEPS)
    name_axis(axes, "y", view.scale)
    if axes.get_yscale() == "linear":
        axes.yaxis.set_major_formatter(FuncFormatter(plainly))
    whole_steps(axes)
    legend(axes, theme, [*keys, *axes.get_legend_handles_labels()[0]], below=True)
    draw_moments((axes,) if lane is None else (lane, axes), view.marks, theme)
    if lane is not None:
        draw_lane(lane, rows, theme)


def around_zero_by_chance(view: Spread) -> bool:
    """Return True if the mean is small beside the deviation: on a log axis it would jump around zero by chance."""
    known = np.isfinite(view.mean) & (view.std > 0)
    return bool(known.any()) and float(np.median(np.abs(view.mean[known]) / view.std[known])) < CHANCE


def _spread(values: Floats, which: npt.NDArray[np.intp]) -> Floats:
    """Return a value for each stretch between borders, NaN in gaps: nothing is drawn where nothing was read."""
    found: Floats = np.where(which >= 0, values[which], np.nan)
    return found


def _scale(axes: Axes, view: Spread) -> None:
    """Linear, or linear around zero and logarithmic on both sides, where sizes differ by orders."""
    if view.edges is not None:
        outer = np.maximum(np.abs(view.edges[:-1]), np.abs(view.edges[1:]))
        usual = float(outer.min())
    else:
        deviations = view.std[np.isfinite(view.std) & (view.std > 0)]
        usual = float(np.median(deviations)) if len(deviations) else 1.0
        usual = min(usual, float(deviations.min()) * WIDE) if len(deviations) else usual
    reach = np.concatenate([view.low, view.high, view.mean, np.zeros(1) if view.edges is None else view.edges])
    reach = reach[np.isfinite(reach)]
    largest = float(np.abs(reach).max())
    if view.scale.log or largest > WIDE * usual:
        around_zero(axes, "y", usual, largest)
        # Extremes may lie far beyond the bins; at least a tick of each side is in sight.
        axes.set_ylim(2 * min(float(reach.min()), -usual), 2 * max(float(reach.max()), usual))


def _histograms(axes: Axes, view: Spread, edges: Floats, shares: Floats, theme: Theme) -> list[Artist]:
    """Draw the bins that hold values; return the keys of the steps that were not read, or have no histogram."""
    borders, which = laid_out(view.steps, view.width, view.end)
    cells = np.where((which[None, :] >= 0) & (shares[:, which] > 0), 100.0 * shares[:, which], np.nan)
    # Small shares are what a tail is made of: the root lets them be seen.
    norm = PowerNorm(0.5, vmin=0.0, vmax=float(np.nanmax(cells)))
    bare = np.isnan(cells).all(axis=0) & (which >= 0) & np.isfinite(view.mean[which])
    keys = _unread(axes, borders, _spread(view.mean, which), theme)
    if bare.any():
        for first, last in zip(borders[:-1][bare], borders[1:][bare], strict=True):
            axes.axvspan(first, last, color=theme.unread[0], linewidth=0, zorder=0)
        keys.append(Patch(facecolor=theme.unread[0], label="read without a histogram"))
    mesh = axes.pcolormesh(
        borders, edges, np.ma.masked_invalid(cells), cmap=colour_map(theme), norm=norm, rasterized=True, zorder=1
    )
    colour_bar(axes, mesh, SHARES, theme)
    return keys


def _unread(axes: Axes, borders: Floats, values: Floats, theme: Theme) -> list[Artist]:
    """Draw the ground of the steps without a value; return its key, if there are any."""
    spans = [(borders[i], borders[i + 1]) for i in np.flatnonzero(np.isnan(values))]
    return [unread(axes, spans, theme)] if spans else []


def _bands(axes: Axes, borders: Floats, which: npt.NDArray[np.intp], view: Spread, theme: Theme) -> list[Artist]:
    keys = _unread(axes, borders, _spread(view.mean, which), theme)
    bands = (
        ("minimum to maximum", view.low, view.high, 0.2, 1),
        ("mean ± standard deviation", view.mean - view.std, view.mean + view.std, 0.45, 2),
    )
    for label, low, high, alpha, order in bands:
        look: dict[str, Any] = {"facecolor": theme.calm[0], "edgecolor": "none", "alpha": alpha, "zorder": order}
        axes.stairs(_spread(high, which), borders, baseline=_spread(low, which), fill=True, label=label, **look)
    mean = _spread(view.mean, which)
    axes.stairs(mean, borders, baseline=None, edgecolor=theme.ink, linewidth=1.4, label="mean", zorder=3)
    return keys


FORM = Form(Spread, size, draw)
