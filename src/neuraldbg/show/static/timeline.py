"""A timeline of one step as a picture: a row for the step and one for each layer, time to the right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from neuraldbg.show.forms import Timeline
from neuraldbg.show.static.axis import TICK_PT, dress, legend, name_axis, plainly
from neuraldbg.show.static.bars import HATCHES
from neuraldbg.show.static.form import Form
from neuraldbg.show.static.labels import fitted
from neuraldbg.show.static.rows import fitting_height, name_rows

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

    from neuraldbg.show.static.theme import Theme

THICK = 0.75
"""Height of a span, as a share of that of a row."""
HATCHED_IN = 0.12
"""Least height in inches of a hatched span."""
THINNEST = 0.0012
"""Least length of a span, as a share of the time shown: a shorter one would not be seen."""


def size(view: Timeline) -> tuple[float, float]:
    """Return a size at which every row is seen."""
    return 10.0, fitting_height(len(view.rows), 0.18, 11.0)


def draw(figure: Figure, view: Timeline, theme: Theme) -> None:
    """Draw the spans of each row, with a colour and a hatch for each part."""
    axes = figure.add_subplot()
    dress(axes, theme, grid="x")
    end = view.end or 1.0
    high = figure.get_figheight() * THICK > HATCHED_IN * (len(view.rows) + 4)
    keys: list[Artist] = []
    for part, name in enumerate(view.parts):
        look: dict[str, Any] = {
            "facecolor": theme.calm[part % len(theme.calm)],
            "hatch": HATCHES[part % len(HATCHES)] if high else "",
            "edgecolor": theme.ground,
        }
        spans = [span for span in view.spans if span.part == part]
        axes.barh(
            [span.row for span in spans],
            [max(span.end - span.start, THINNEST * end) for span in spans],
            left=[span.start for span in spans],
            height=THICK,
            linewidth=0,
            zorder=2,
            **look,
        )
        keys.append(Patch(label=fitted(name, 1.9, TICK_PT, lines=2), **look))
    axes.set_xlim(0, end * 1.01)
    axes.set_ylim(len(view.rows) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(FuncFormatter(plainly))
    name_axis(axes, "x", view.scale)
    legend(axes, theme, keys)
    strong = [row for row, layer in zip(view.rows, view.layers, strict=True) if layer in view.guilty]
    name_rows(axes, view.rows, strong, theme)


FORM = Form(Timeline, size, draw)
