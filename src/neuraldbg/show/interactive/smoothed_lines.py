"""Smoothed lines as a figure: averages as all lines are drawn, and the measured values thin and pale behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.show.axes.downsample import thinned
from neuraldbg.show.interactive import lines
from neuraldbg.show.interactive.frame import graph_objects
from neuraldbg.show.interactive.words import axis_title, safe

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from neuraldbg.show.forms import SmoothedLines
    from neuraldbg.show.static.theme import Theme

PALE = 0.4
"""Opacity of the measured values."""


def figure(view: SmoothedLines, theme: Theme) -> go.Figure:
    """Return the averages with the measured values behind them; in a crowd only those of named lines."""
    made = lines.figure(view, theme)
    drawn = len(made.data)
    for line in view.measured:
        trace = _trace_of(made, safe(line.name))
        if trace is None or trace.line.color == theme.crowd:
            continue
        few = thinned(line, lines.MOST)
        made.add_trace(
            graph_objects().Scatter(
                x=few.steps,
                y=few.values,
                customdata=[[line.layer, step] for step in few.steps.tolist()],
                mode="lines",
                line={"color": trace.line.color, "width": 1},
                opacity=PALE,
                name=f"{safe(line.name)}, measured",
                legendgroup=trace.legendgroup,
                showlegend=False,
                hovertemplate=f"%{{fullData.name}}<br>step %{{x}}<br>{axis_title(view.y)}: %{{y:.4g}}<extra></extra>",
            )
        )
    made.data = (*made.data[drawn:], *made.data[:drawn])
    return made


def _trace_of(made: go.Figure, name: str) -> go.Scatter | None:
    """Return the trace of a line, which may carry the sign of a guilty layer; None if there is none."""
    named = (trace for trace in made.data if trace.name in {name, f"▶ {name}"} and trace.hovertemplate)
    return next(named, None)
