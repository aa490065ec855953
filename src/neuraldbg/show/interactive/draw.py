"""A view as a plotly figure: any form and a theme enter, a figure to zoom and click in leaves.

What a click means is in the point's ``customdata``: item 0 is the layer's path as the record has it ("" is the model
itself), None where it is of no layer; item 1 is the first step that it stands for, None where it is of no step. What
follows (the last step, the value in words) is for the pointer alone. Points, bars, events and nodes carry it, and the
bins of a distribution. The cells of a map of layers carry numbers, first step, last step and value; their layer is that
of the row.

A layer's path in ``customdata`` is data: escape it before it becomes HTML. Everywhere else in the figure names are
escaped already, since plotly reads a little HTML in all of its texts.

``uirevision`` is that of the view and what it shows, so that drawing it again keeps a person's zoom. Needs the extra
``dashboard``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.show.forms import Bars, Graph, Heat, Lines, SmoothedLines, Spread, Timeline, View
from neuraldbg.show.interactive import bars, graph, heat, lines, smoothed_lines, spread, timeline
from neuraldbg.show.interactive.frame import framed, roomy, say_empty
from neuraldbg.show.static.theme import Theme, theme_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import plotly.graph_objects as go

FORMS: tuple[tuple[type[View], Callable[[Any, Theme], Any]], ...]
FORMS = (
    (Bars, bars.figure),
    (Graph, graph.figure),
    (Heat, heat.figure),
    (SmoothedLines, smoothed_lines.figure),  # before Lines, which it is too
    (Lines, lines.figure),
    (Spread, spread.figure),
    (Timeline, timeline.figure),
)


def figure(view: View, *, theme: str = "light") -> go.Figure:
    """Return a view as a figure. ``theme`` is ``light`` or ``dark``; ConfigError for another, MissingExtra."""
    colours = theme_of(theme)
    if view.empty:
        return say_empty(framed(view, colours, "empty"), view, colours)
    drawn: go.Figure = next(draw for form, draw in FORMS if isinstance(view, form))(view, colours)
    return roomy(drawn)
