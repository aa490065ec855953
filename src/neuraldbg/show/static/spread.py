"""The distribution of the values of one site over time: histograms if the run has them, else a band of moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import PowerNorm

from neuraldbg.show.forms import STEPS, Scale, Spread
from neuraldbg.show.static.axis import around_zero, dress, legend, name_axis, whole_steps
from neuraldbg.show.static.cells import colour_bar, colour_map, laid_out, unread
from neuraldbg.show.static.form import Form
from neuraldbg.show.static.marks import draw_lane, draw_moments, stacked

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from neuraldbg.show.forms import Floats
    from neuraldbg.show.static.theme import Theme

SHARES = Scale("share of the values read", "%")
WIDE = 1000.0
"""Ratio of the largest size to the usual one, from which the axis is linear near zero and logarithmic further out."""


def size(view: Spread) -> tuple[float, float]:
    """Return a size for a page's width."""
    del view
    return 10.0, 5.0


def draw(figure: Figure, view: Spread, theme: Theme) -> None:
    """Draw the shares of the bins as colours, or the moments as bands; the extremes as lines in both."""
    axes, lane, rows = stacked(figure, view.marks)
    middle = view.steps + (view.width - 1) / 2
    dress(axes, theme)
    keys: list[Artist] = []
    _scale(axes, view)
    if view.edges is not None and view.shares is not None and np.isfinite(view.shares).any():
        keys = _histograms(axes, view, view.edges, view.shares, theme)
        look: dict[str, Any] = {"color": theme.ink, "zorder": 3}
        axes.plot(middle, view.mean, linewidth=1.4, label="mean", **look)
        axes.plot(middle, view.high, linewidth=0.8, linestyle=":", label="least and largest", **look)
        axes.plot(middle, view.low, linewidth=0.8, linestyle=":", label="_", **look)
    else:
        _bands(axes, middle, view, theme)
    ends = view.steps + view.width
    margin = max(0.5, 0.01 * (ends[-1] - view.steps[0]))
    axes.set_xlim(view.steps[0] - margin, ends[-1] - 1 + margin)
    name_axis(axes, "x", STEPS)
    name_axis(axes, "y", view.scale)
    whole_steps(axes)
    legend(axes, theme, [*keys, *axes.get_legend_handles_labels()[0]], below=True)
    draw_moments((axes,) if lane is None else (lane, axes), view.marks, theme)
    if lane is not None:
        draw_lane(lane, rows, theme)


def _scale(axes: Axes, view: Spread) -> None:
    """Linear, or linear around zero and logarithmic on both sides, where sizes differ by orders."""
    if view.edges is not None:
        sizes = np.abs(view.edges[np.isfinite(view.edges) & (view.edges != 0)])
        usual = float(sizes.min()) if len(sizes) else 1.0
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
    """Draw the bins that hold values; return the key of the steps without a histogram, if there are any."""
    borders, which = laid_out(view.steps, view.width)
    cells = np.where((which[None, :] >= 0) & (shares[:, which] > 0), 100.0 * shares[:, which], np.nan)
    # Small shares are what a tail is made of: the root lets them be seen.
    norm = PowerNorm(0.5, vmin=0.0, vmax=float(np.nanmax(cells)))
    empty = np.isnan(cells).all(axis=0)
    spans = [(borders[i], borders[i + 1]) for i in np.flatnonzero(empty)]
    keys: list[Artist] = [unread(axes, spans, theme, "no histogram")] if spans else []
    mesh = axes.pcolormesh(
        borders, edges, np.ma.masked_invalid(cells), cmap=colour_map(theme), norm=norm, rasterized=True, zorder=1
    )
    colour_bar(axes, mesh, SHARES, theme)
    return keys


def _bands(axes: Axes, middle: Floats, view: Spread, theme: Theme) -> None:
    colour = theme.calm[0]
    look: dict[str, Any] = {"color": colour, "linewidth": 0}
    axes.fill_between(middle, view.low, view.high, alpha=0.2, label="least to largest", zorder=1, **look)
    below, above = view.mean - view.std, view.mean + view.std
    axes.fill_between(middle, below, above, alpha=0.45, label="mean ± standard deviation", zorder=2, **look)
    axes.plot(middle, view.mean, color=theme.ink, linewidth=1.4, label="mean", zorder=3)


FORM = Form(Spread, size, draw)
