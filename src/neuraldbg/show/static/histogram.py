"""The drawing of a histogram: counts of a tensor's values in bins, at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.ticker import FuncFormatter, MaxNLocator

from neuraldbg.show.format.safe_text import number
from neuraldbg.show.static.axis import dress, legend, name_axis
from neuraldbg.show.static.counting import Histogram
from neuraldbg.show.static.form import Form

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from neuraldbg.show.static.theme import Theme


def size(view: Histogram) -> tuple[float, float]:
    """Return a size for a page's width."""
    del view
    return 8.0, 4.5


def draw(figure: Figure, view: Histogram, theme: Theme) -> None:
    """Draw the counts as a staircase; mean and standard deviation as lines with their numbers in the legend."""
    axes = figure.add_subplot()
    dress(axes, theme)
    axes.stairs(view.counts, view.edges, fill=True, facecolor=theme.calm[0], edgecolor=theme.ink, linewidth=0.3)
    look: dict[str, Any] = {"color": theme.ink, "linewidth": 1.2}
    axes.axvline(view.mean, label=f"mean {number(view.mean)}", **look)
    label = f"standard deviation {number(view.std)}"
    for place in (view.mean - view.std, view.mean + view.std):
        if view.edges[0] <= place <= view.edges[-1]:
            axes.axvline(place, linestyle=(0, (4, 2)), label=label, **look)
            label = "_"
    name_axis(axes, "x", view.scale)
    axes.set_ylabel("count")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    axes.set_ylim(bottom=0)
    legend(axes, theme, below=True)


FORM = Form(Histogram, size, draw)
