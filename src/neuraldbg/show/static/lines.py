"""Series over steps, with their extremes as bands and the events in a lane above."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.show.forms import Lines
from neuraldbg.show.static.axis import dress, legend, name_axis, whole_steps
from neuraldbg.show.static.curves import draw_curves
from neuraldbg.show.static.form import Form
from neuraldbg.show.static.marks import draw_lane, draw_moments, lane_height, lane_rows, stacked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from neuraldbg.show.static.theme import Theme


def size(view: Lines) -> tuple[float, float]:
    """Return a size with room for the lane."""
    return 10.0, 5.0 + lane_height(lane_rows(view.marks))


def draw(figure: Figure, view: Lines, theme: Theme) -> None:
    """Draw the lines, the legend beside them and the marks."""
    axes, lane, rows = stacked(figure, view.marks)
    draw_curves(axes, view.lines, view.guilty, theme, log=view.y.log)
    ends = [int(end) for line in view.lines if len(line.steps) for end in (line.steps[0], line.steps[-1])]
    ends += [view.end - 1] if view.end else []
    first, last = (min(ends), max(ends)) if ends else (0, 1)
    margin = max(0.5, 0.02 * (last - first))
    axes.set_xlim(first - margin, last + margin)
    dress(axes, theme)
    whole_steps(axes)
    name_axis(axes, "x", view.x)
    name_axis(axes, "y", view.y)
    legend(axes, theme) if len(axes.get_legend_handles_labels()[0]) > 1 or len(view.lines) > 1 else None
    draw_moments((axes,) if lane is None else (lane, axes), view.marks, theme)
    if lane is not None:
        draw_lane(lane, rows, theme)


FORM = Form(Lines, size, draw)
