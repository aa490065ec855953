"""Common parts of all panels: scales that fit the values, axes in the theme's colours, legends beside the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from neuraldbg.show.format.safe_text import number
from neuraldbg.show.static.labels import POINTS, fitted, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from neuraldbg.show.forms import Floats, Scale
    from neuraldbg.show.static.theme import Theme

LABEL_PT, TICK_PT = 9.0, 8.0
ROOMY_IN = 7.5
"""A picture at least so wide has its legend to the right of the data, a narrower one below."""

KEY_IN = 0.65
"""What a key takes of a legend beside its words."""
NAMES = 0.34
"""Largest share of a picture's width for the names of layers and their surroundings."""
SIDE, FEW_SIDE = 4, 1
"""Ticks on each side of zero, where an axis has both and grows by powers of ten."""
LOW_IN = 5.0
"""A lower picture has room for few ticks, and few kinds of events."""


def name_axis(axes: Axes, direction: str, scale: Scale) -> None:
    """Label an axis with its quantity and unit, in at most two lines."""
    words = f"{scale.label} ({scale.unit})" if scale.unit else scale.label
    if direction == "y":
        axes.set_ylabel(fitted(words, 0.5 * page(axes).get_figheight(), LABEL_PT, lines=2))
    else:
        axes.set_xlabel(fitted(words, 0.6 * page(axes).get_figwidth(), LABEL_PT, lines=2))


def dress(axes: Axes, theme: Theme, *, grid: Literal["both", "x", ""] = "both") -> None:
    """Give the axes the colours of the theme and a quiet grid; both rulers at the right and the top go."""
    axes.set_facecolor(theme.ground)
    axes.tick_params(which="both", colors=theme.ink, labelcolor=theme.ink, labelsize=TICK_PT)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=theme.ink, fontsize=LABEL_PT)
    for text in (axes.xaxis.get_offset_text(), axes.yaxis.get_offset_text()):
        text.set(color=theme.ink, fontsize=TICK_PT)
    axes.spines[:].set_color(theme.ink)
    if grid:
        axes.grid(visible=True, which="major", axis=grid, color=theme.grid, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)


def scaled(axes: Axes, direction: str, values: Floats, *, log: bool) -> bool:
    """Set a log scale where it is wanted and can be, symmetric around zero if values are negative.

    Return whether the scale is a plain log scale, which has no place for zero.
    """
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    if not log or not len(sizes):
        return False
    set_scale = axes.set_yscale if direction == "y" else axes.set_xscale
    if np.nanmin(values) < 0:  # linear around zero, where the small values are
        around_zero(axes, direction, float(np.quantile(sizes, 0.1)), float(sizes.max()))
        return False
    set_scale("log")
    return True


def around_zero(axes: Axes, direction: str, usual: float, largest: float) -> None:
    """Set a scale that is linear up to the usual size and logarithmic further out on both sides, with few ticks."""
    axis = axes.yaxis if direction == "y" else axes.xaxis
    (axes.set_yscale if direction == "y" else axes.set_xscale)("symlog", linthresh=usual)
    low, high = int(np.ceil(np.log10(usual))), int(np.floor(np.log10(max(largest, usual))))
    each = max(1, -(-(high - low + 1) // (SIDE if page(axes).get_figheight() >= LOW_IN else FEW_SIDE)))
    # The first power of ten is one below its place from zero: no tick is nearer to that than to the next.
    exponents = [e for e in range(high, low - 1, -each) if e - low + 1 >= each]
    axis.set_major_locator(FixedLocator([0.0, *(sign * 10.0**e for e in exponents for sign in (1, -1))]))
    axis.set_minor_locator(NullLocator())


def whole_steps(axes: Axes) -> None:
    """Set the ticks of the x axis at whole steps, written with thousands separators."""
    narrow = page(axes).get_figwidth() < ROOMY_IN
    bins: Any = 5 if narrow else "auto"
    axes.xaxis.set_major_locator(MaxNLocator(bins, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _columns(labels: Sequence[str], room_in: float) -> int:
    """Return how many columns of keys fit side by side."""
    widest = max(width_of(line, TICK_PT) for label in labels for line in label.split("\n"))
    return max(1, min(len(labels), int(room_in / (widest + KEY_IN))))


def page(axes: Axes) -> Figure:
    """Return the figure that the axes are on."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    return figure


def inches(axes: Axes) -> tuple[float, float]:
    """Return the width and height that the parts around the axes leave for them."""
    figure = page(axes)
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)
    room = axes.get_position()
    return room.width * figure.get_figwidth(), room.height * figure.get_figheight()


def plainly(value: float, _: object = None) -> str:
    """Return the number at a tick in the words of the other faces."""
    return number(value)


def legend(
    axes: Axes, theme: Theme, handles: Sequence[Artist] = (), *, below: bool = False, drop_pt: float = 34
) -> None:
    """Put the legend beside the data: to the right, or below in a narrow picture or on demand.

    ``drop_pt`` is how far below the data: ticks and the label of the axis lie between.
    """
    known = list(handles) or axes.get_legend_handles_labels()[0]
    if not known:
        return
    width = page(axes).get_figwidth()
    look: dict[str, Any] = {"fontsize": TICK_PT, "frameon": False, "handlelength": 3, "labelcolor": theme.ink}
    if width >= ROOMY_IN and not below:
        axes.legend(handles=known, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0, **look)
        return
    drop_pt += axes.get_xlabel().count("\n") * 1.2 * LABEL_PT
    down = ScaledTranslation(0, -drop_pt / POINTS, page(axes).dpi_scale_trans)
    axes.legend(
        handles=known,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=axes.transAxes + down,
        borderaxespad=0,
        ncols=_columns([str(handle.get_label()) for handle in known], (1 - NAMES) * width),
        columnspacing=1.5,
        **look,
    )
