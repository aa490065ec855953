"""Values of each layer as bars, top to bottom in data-flow order; thresholds as lines with their names above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

from neuraldbg.show.format.safe_text import GUILTY, ZERO, number
from neuraldbg.show.forms import Bars
from neuraldbg.show.static.axis import LABEL_PT, TICK_PT, dress, inches, legend, name_axis, page, plainly, scaled
from neuraldbg.show.static.form import Form
from neuraldbg.show.static.labels import POINTS, fitted, literal
from neuraldbg.show.static.rows import LINE, SMALL_PT, fitting_height, name_rows

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from neuraldbg.show.forms import Bools, Floats
    from neuraldbg.show.static.theme import Theme

THICK = 0.8
"""Thickness of a bar, as a share of the height of a row."""
HATCHES = ("", "////", "....", "xxxx", "----", "++++")
HATCHED_IN = 0.06
"""Least thickness in inches of a hatched bar: in a thinner one the hatch would hide the colour."""
INSIDE_IN = 0.06
"""Distance in inches of the signs from the edge, clear of the names."""
LEVEL = 1.4
"""Lines of text between the names of two thresholds."""


def size(view: Bars) -> tuple[float, float]:
    """Return a size at which every bar is seen."""
    return 10.0, fitting_height(len(view.layers), 0.1 + 0.09 * (1 if view.stacked else len(view.bars)), 11.0)


def draw(figure: Figure, view: Bars, theme: Theme) -> None:
    """Draw a bar for each layer and group. What has no length on this axis has a sign at the edge."""
    axes = figure.add_subplot()
    dress(axes, theme, grid="x")
    drawn_values = [view.sums] if view.stacked else [bar.values for bar in view.bars]
    known = [np.zeros(0), *drawn_values, np.array([limit for _, limit in view.limits])]
    no_zero = _scale(axes, np.concatenate(known), log=view.scale.log)
    keys: list[Artist] = []
    each = THICK / max(1, 1 if view.stacked else len(view.bars))
    base = np.zeros(len(view.layers))
    guilty = np.isin(view.layers, view.guilty)
    signs: dict[str, list[tuple[Floats, Bools]]] = {}
    rows_shown = len(view.layers) + 4  # with those that the title and the axis would take
    for i, bar in enumerate(view.bars):
        rows = np.arange(len(view.layers), dtype=np.float64) - THICK / 2 + each * ((0 if view.stacked else i) + 0.5)
        there = np.isfinite(bar.values) & ((bar.values > 0) | (not no_zero))
        look: dict[str, Any] = {
            "facecolor": theme.calm[i % len(theme.calm)],
            "hatch": HATCHES[i % len(HATCHES)] if figure.get_figheight() * each > HATCHED_IN * rows_shown else "",
            "edgecolor": theme.ground,
        }
        left = base[there] if view.stacked else None
        drawn = axes.barh(rows[there], bar.values[there], left=left, height=each, linewidth=0, zorder=2, **look)
        base[there] += bar.values[there]
        for patch, strong in zip(drawn, guilty[there], strict=True):
            if strong and not view.stacked:  # the colours of a sum are its parts; the name is strong there
                patch.set_facecolor(theme.strong)  # its hatch still says which group it is of
        if len(view.bars) > 1:
            keys.append(Patch(label=fitted(bar.name, 1.9, TICK_PT, lines=3), **look))
        signs.setdefault(ZERO, []).append((rows, (bar.values == 0) & no_zero))
        signs.setdefault(view.missing, []).append((rows, np.isnan(view.sums if view.stacked else bar.values)))
        signs.setdefault("not finite", []).append((rows, np.isinf(bar.values)))
    keys += _signs(axes, signs, theme)
    if guilty.any() and len(view.bars) > 1 and not view.stacked:
        keys.append(Patch(facecolor=theme.strong, label=GUILTY))
    axes.set_ylim(len(view.layers) - 0.5, -0.5)
    name_axis(axes, "x", view.scale)
    _limits(axes, view, theme)
    if keys:
        legend(axes, theme, keys, below=bool(view.words))
    name_rows(axes, view.layers, view.guilty, theme)
    if view.words:
        _words(axes, view, theme)


def _scale(axes: Axes, values: Floats, *, log: bool) -> bool:
    """Set the x axis with room around the values; return whether it has no place for zero."""
    known = values[np.isfinite(values)]
    no_zero = scaled(axes, "x", known, log=log)
    if no_zero:
        least, most = known[known > 0].min(), known.max()
        axes.set_xlim(least / max(2.0, (most / least) ** 0.03), most * max(1.3, (most / least) ** 0.03))
        if most / least < 30:
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: literal(plainly(value))))
            axes.xaxis.set_minor_formatter(NullFormatter())
    elif len(known):
        low, high = min(0.0, float(known.min())), max(0.0, float(known.max()))
        span = (high - low) or 1.0
        axes.set_xlim(low - 0.03 * span * (low < 0), high + 0.03 * span)
        axes.axvline(0, color=axes.spines["bottom"].get_edgecolor(), linewidth=0.8, zorder=3)
    return no_zero


def _signs(axes: Axes, signs: dict[str, list[tuple[Floats, Bools]]], theme: Theme) -> list[Artist]:
    """Signs at the edge for values that have no length; the keys of those that are there."""
    looks: dict[str, dict[str, Any]] = {
        ZERO: {"marker": "o", "markerfacecolor": theme.ground, "color": theme.ink},
        "not finite": {"marker": ">", "color": theme.bad},
    }
    missing: dict[str, Any] = {"marker": "x", "color": theme.muted}
    keys: list[Artist] = []
    for word, found in signs.items():
        rows = np.concatenate([rows[there] for rows, there in found])
        if not len(rows):
            continue
        edge = np.full(len(rows), 1.0 if word == "not finite" else 0.0)
        inside = ScaledTranslation((-1 if word == "not finite" else 1) * INSIDE_IN, 0, page(axes).dpi_scale_trans)
        place = axes.get_yaxis_transform() + inside
        keys += axes.plot(
            edge,
            rows,
            linestyle="none",
            markersize=5,
            label=word,
            transform=place,
            clip_on=False,
            zorder=5,
            **looks.get(word, missing),
        )
    return keys


def _words(axes: Axes, view: Bars, theme: Theme) -> None:
    """Write the words of each row at the right edge, if rows are high enough for them."""
    wide, high = inches(axes)
    if high * POINTS < LINE * SMALL_PT * len(view.layers):
        return
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(view.layers)), [fitted(words, wide / 3, SMALL_PT) for words in view.words])
    right.tick_params(axis="y", length=0, labelsize=SMALL_PT, labelcolor=theme.muted)
    right.spines[:].set_visible(False)


def _limits(axes: Axes, view: Bars, theme: Theme) -> None:
    """Draw lines at the thresholds, with their names above the bars, each on a separate line."""
    low, high = axes.get_xlim()
    for level, (name, value) in enumerate(sorted(view.limits, key=lambda limit: limit[1])):
        if not low <= value <= high:
            continue
        axes.axvline(value, color=theme.ink, linewidth=1.2, linestyle=(0, (4, 2)), zorder=4)
        share = float(axes.transAxes.inverted().transform(axes.transData.transform((value, 0)))[0])
        axes.annotate(
            fitted(f"{name}: {number(value)} {view.scale.unit}".rstrip(), 0.45 * page(axes).get_figwidth(), LABEL_PT),
            (value, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 3 + level * LEVEL * LABEL_PT),
            textcoords="offset points",
            ha="left" if share < 0.3 else "right" if share > 0.7 else "center",
            va="bottom",
            fontsize=LABEL_PT,
            color=theme.ink,
        )


FORM = Form(Bars, size, draw)
