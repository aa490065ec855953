"""The panels of the crash picture: the loss and every layer's curve, with non-finite values marked at the edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.axes.gaps import breaks
from neuraldbg.show.axes.ticks import wide
from neuraldbg.show.forms import Line, Mark
from neuraldbg.show.static.axis import dress, legend
from neuraldbg.show.static.curves import draw_curves
from neuraldbg.show.static.marks import draw_moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from neuraldbg.show.static.theme import Theme
    from neuraldbg.show.views.crash import Curve, Picture

BINS = 120
"""A run that did not fail is drawn as the median and the range of this many bins, once it has twice as many steps."""


def draw_loss(axes: Axes, shown: Picture, theme: Theme) -> None:
    """Draw the loss, with NaN or infinite steps marked at the top edge."""
    loss = shown.loss
    finite = np.isfinite(loss.values)
    if len(loss):
        values = np.where(finite, loss.values, np.nan)
        line = Line("loss", loss.steps, values, nonfinite=loss.steps[~finite])
        draw_curves(axes, [line], (), theme, log=wide(loss.values, signed=True))
    axes.set_ylabel("loss")
    dress(axes, theme)
    if not len(loss):
        _say(axes, "no loss was seen", theme)
    elif not finite.all():
        legend(axes, theme)


def draw_layers(axes: Axes, shown: Picture, curves: Sequence[Curve], label: str, theme: Theme) -> None:
    """Draw one line a layer on a log axis; the guilty one thick and on top."""
    smooth = shown.failure is None and max((len(c.series) for c in curves), default=0) > 2 * BINS
    axes.set_ylabel(f"{label}\nmedian and range" if smooth else label)
    lines = [line_of(curve, smooth=smooth) for curve in curves]
    draw_curves(axes, lines, shown.guilty, theme, log=True, charge=shown.charge)
    dress(axes, theme)
    if curves:
        legend(axes, theme)
    else:
        _say(axes, "not measured in this run", theme)


def line_of(curve: Curve, *, smooth: bool) -> Line:
    """Return a curve as a line to draw."""
    series = curve.series
    bad = None if curve.nonfinite is None else series.steps[series.steps >= curve.nonfinite]
    gaps = breaks(series.steps, series.width)
    unread = (series.steps + series.width)[gaps]  # a NaN there: the line breaks
    if not smooth or len(series) <= 2 * BINS:
        steps = np.insert(series.steps, gaps + 1, unread)
        values = np.insert(series.values, gaps + 1, np.nan)
        return Line(curve.layer, steps, values, layer=curve.layer, nonfinite=bad)
    # A long quiet run is noise upon noise otherwise.
    borders = np.unique([*np.linspace(0, len(series), BINS + 1).astype(int), *(gaps + 1)])
    parts = [
        (round(s.mean()), *((float(np.median(v)), float(v.min()), float(v.max())) if len(v) else (np.nan,) * 3))
        for s, block in zip(np.split(series.steps, borders[1:-1]), np.split(series.values, borders[1:-1]), strict=True)
        for v in (block[np.isfinite(block)],)
    ]
    found = np.array([*parts, *((step, np.nan, np.nan, np.nan) for step in unread.tolist())], dtype=np.float64)
    middle, median, low, high = found[np.argsort(found[:, 0], kind="stable")].T
    return Line(curve.layer, middle.astype(np.int64), median, low, high, curve.layer, bad)


def mark_failure(panels: Sequence[Axes], shown: Picture, theme: Theme) -> None:
    """Draw the moment of failure through all panels, say in the first one what it is, and tint what follows."""
    if shown.failure is None:
        return
    for axes in panels:
        axes.axvspan(shown.failure, shown.last + shown.span, color=theme.bad, alpha=0.05, linewidth=0, zorder=0)
    draw_moments(panels, [Mark(shown.failure, shown.failure_label, "failure")], theme)


def _say(axes: Axes, words: str, theme: Theme) -> None:
    axes.set_yticks([])
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=theme.muted)
