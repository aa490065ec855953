"""The panels of the crash picture.

Colours are Okabe and Ito's, which every kind of colour vision tells apart (Okabe & Ito 2008, "Color Universal Design");
line styles and markers differ too, so that a grey print is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.show.names import short_names
from neuraldbg.show.text import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from matplotlib.axes import Axes

    from neuraldbg.nouns import Series
    from neuraldbg.show.views.crash import Curve, Picture

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

STRONG = "#D55E00"
"""Vermillion: the guilty layer, and nothing else."""
CALM = ("#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00", "#000000")
STYLES = ("-", "--", "-.", ":")
GREY = "#B5B5B5"
FAILURE = "#000000"
NAMED = 12
"""With more layers than this only the guilty, the first and the last are named; the rest is a grey crowd."""
DECADES = 2.0
"""A loss that spans more powers of ten than this is drawn on a log axis (symmetric where it is not positive)."""
BINS = 120
"""A run that did not fail is drawn as the median and the range of this many bins, once it has twice as many steps."""


def draw_loss(axes: Axes, shown: Picture) -> None:
    """The loss, with the steps at which it was NaN or infinite marked at the top edge."""
    loss = shown.loss
    finite = np.isfinite(loss.values)
    if not len(loss):
        _say(axes, "no loss was seen")
    else:
        dot = "o" if finite.sum() < 2 else None
        axes.plot(loss.steps[finite], loss.values[finite], color=CALM[0], linewidth=1.4, marker=dot, label="loss")
        _loss_scale(axes, loss.values[finite])
        if not finite.all():
            runs = np.split(np.flatnonzero(~finite), np.flatnonzero(np.diff(np.flatnonzero(~finite)) > 1) + 1)
            starts = loss.steps[[run[0] for run in runs]]
            for run in runs:
                _bar_top(axes, int(loss.steps[run[0]]), int(loss.steps[run[-1]]))
            _mark_top(axes, starts, STRONG, f"NaN or Inf\nfrom step {int(starts[0]):,} on")
            _legend(axes)
    axes.set_ylabel("loss")
    _finish(axes)


def _loss_scale(axes: Axes, values: Floats) -> None:
    sizes = np.abs(values[values != 0])
    if not len(sizes) or np.log10(sizes.max() / sizes.min()) <= DECADES:
        return
    if values.min() > 0:
        axes.set_yscale("log")
    else:  # a loss may be negative: linear around zero, where the small values are
        axes.set_yscale("symlog", linthresh=float(np.quantile(sizes, 0.1)))


def draw_layers(axes: Axes, shown: Picture, curves: Sequence[Curve], label: str) -> None:
    """One line a layer on a log axis; the guilty one thick and on top; not-finite values at the top edge."""
    smooth = shown.failure is None and max((len(c.series) for c in curves), default=0) > 2 * BINS
    axes.set_ylabel(f"{label}\nmedian and range" if smooth else label)
    if not curves:
        _say(axes, "not measured in this run")
        _finish(axes)
        return
    crowd = len(curves) > NAMED
    names = short_names([curve.layer for curve in curves])
    calm = 0
    for i, curve in enumerate(curves):
        guilty = curve.layer in shown.guilty
        named = guilty or not crowd or i in (0, len(curves) - 1)
        if guilty:
            look: dict[str, Any] = {"color": STRONG, "linewidth": 2.8, "linestyle": "-", "zorder": 5}
        elif named:
            look = {
                "color": CALM[calm % len(CALM)],
                "linewidth": 1.3,
                "linestyle": STYLES[(1 + calm // len(CALM) + calm) % len(STYLES)],
                "zorder": 3,
            }
            calm += 1
        else:
            look = {"color": GREY, "linewidth": 0.8, "linestyle": "-", "zorder": 2}
        _draw_curve(
            axes,
            curve.series,
            look,
            _name(names[curve.layer], shown.charge if guilty else "") if named else "_",
            smooth=smooth,
        )
    if crowd:
        others = len(curves) - calm - sum(c.layer in shown.guilty for c in curves)
        axes.plot([], [], color=GREY, linewidth=0.8, label=f"{others} other layers")
    _edges(axes, curves, shown)
    positive = [c.series.values[np.isfinite(c.series.values) & (c.series.values > 0)] for c in curves]
    if any(len(values) for values in positive):
        axes.set_yscale("log")
    _legend(axes)
    _finish(axes)


def _draw_curve(axes: Axes, series: Series, look: dict[str, Any], label: str, *, smooth: bool) -> None:
    values = np.where(np.isfinite(series.values) & (series.values > 0), series.values, np.nan)
    steps = series.steps.astype(np.float64)
    if smooth and len(values) > 2 * BINS:
        steps, values, low, high = _binned(steps, values)
        if look["color"] != GREY:
            axes.fill_between(steps, low, high, color=look["color"], alpha=0.15, linewidth=0)
    # A lone point between gaps would be invisible as a line.
    marker: dict[str, Any] = {"marker": "o", "markersize": 4} if np.isfinite(values).sum() < 2 else {}
    axes.plot(steps, values, label=label, **look, **marker)


def _binned(steps: Floats, values: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Middle step, median, least and greatest of equal bins: a long quiet run is noise upon noise otherwise."""
    parts = [
        (float(s.mean()), *((float(np.median(v)), float(v.min()), float(v.max())) if len(v) else (np.nan,) * 3))
        for s, block in zip(np.array_split(steps, BINS), np.array_split(values, BINS), strict=True)
        for v in (block[np.isfinite(block)],)
    ]
    middle, median, low, high = np.array(parts, dtype=np.float64).T
    return middle, median, low, high


def _edges(axes: Axes, curves: Sequence[Curve], shown: Picture) -> None:
    """Mark where layers stopped being finite (top edge) or became zero (bottom edge), a crowd at once with one mark."""
    guilty = {c.nonfinite for c in curves if c.nonfinite is not None and c.layer in shown.guilty}
    others = {c.nonfinite for c in curves if c.nonfinite is not None} - guilty
    for steps, color, who in ((others, FAILURE, "others "), (guilty, STRONG, "")):
        if steps:
            word = who if guilty else ""
            _mark_top(axes, np.array(sorted(steps)), color, f"{word}not finite\nfrom step {min(steps):,} on")
    zero = sorted({curve.zero for curve in curves if curve.zero is not None})
    if zero:
        _mark_edge(axes, np.array(zero), 0.0, FAILURE, f"exactly 0\nfrom step {zero[0]:,} on")


def _mark_top(axes: Axes, steps: Ints, color: str, label: str) -> None:
    _mark_edge(axes, steps, 1.0, color, label)


def _mark_edge(axes: Axes, steps: Ints, height: float, color: str, label: str) -> None:
    axes.plot(
        steps,
        np.full(len(steps), height),
        linestyle="none",
        marker="v" if height else "^",
        markersize=8,
        color=color,
        clip_on=False,
        zorder=6,
        transform=axes.get_xaxis_transform(),
        label=label,
    )


def _bar_top(axes: Axes, first: int, last: int) -> None:
    """A bar along the top edge, for a loss that stayed not finite."""
    axes.plot(
        [first, last],
        [1.0, 1.0],
        color=STRONG,
        linewidth=5,
        solid_capstyle="butt",
        clip_on=False,
        zorder=5,
        transform=axes.get_xaxis_transform(),
        label="_bar",
    )


def mark_failure(panels: Sequence[Axes], shown: Picture) -> None:
    """Draw the moment of failure through all panels, and say in the first one what it is."""
    if shown.failure is None:
        return
    for axes in panels:
        axes.axvspan(shown.failure, shown.last + shown.span, color=STRONG, alpha=0.05, linewidth=0, zorder=0)
        axes.axvline(shown.failure, color=FAILURE, linewidth=1.2, linestyle=(0, (4, 2)), zorder=4)
    share = (shown.failure - shown.first) / shown.span
    panels[0].annotate(
        plain(shown.failure_label).replace("$", r"\$"),
        (shown.failure, 1.0),
        xycoords=panels[0].get_xaxis_transform(),
        xytext=(0, 9),  # above the data and the marks at the top edge
        textcoords="offset points",
        ha="left" if share < 0.3 else "right" if share > 0.7 else "center",
        va="bottom",
        fontsize=9,
        fontweight="bold",
    )


def _name(short: str, charge: str) -> str:
    name = plain(short).replace("$", r"\$")
    # A label that starts with an underscore would be left out of the legend.
    name = f" {name}" if name.startswith("_") else name
    return f"{name} ({charge})" if charge else name


def _legend(axes: Axes) -> None:
    place = (1.01, 1.0)  # outside the data
    axes.legend(loc="upper left", bbox_to_anchor=place, borderaxespad=0, fontsize=8, frameon=False, handlelength=3)


def _say(axes: Axes, words: str) -> None:
    axes.set_yticks([])
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color="#555555")


def _finish(axes: Axes) -> None:
    axes.grid(visible=True, which="major", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
