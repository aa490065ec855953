"""Layers by steps as a map of colours, each column at its true steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.show.interactive.cells import cell_map, coloured, columns_of, flat_map, in_numbers
from neuraldbg.show.interactive.frame import axis, framed, graph_objects, mark_moments, with_notes
from neuraldbg.show.interactive.words import full_names, safe, tick_names

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from neuraldbg.show.forms import Bools, Heat
    from neuraldbg.show.interactive.cells import Columns
    from neuraldbg.show.static.theme import Theme

ALL_NAMED = 40
"""With more layers than this only some are named beside the map; the pointer names each."""
CROSSED = 400
"""Crosses, one where each stretch of NaN or infinite cells begins; the stretches after them have the colour alone."""
ROW, AROUND, LEAST, TALLEST = 22, 170, 300, 1200
"""Sizes in pixels: a layer, the surroundings of the map, least height, largest height."""


def figure(view: Heat, theme: Theme) -> go.Figure:
    """Return the map. Unread cells, and cells with NaN or infinite values, have separate colours and names."""
    made = framed(view, theme, view.scale.label)
    columns = columns_of(view.steps, view.width, view.end)
    values, bad = columns.spread(view.values), columns.spread(view.nonfinite.astype(float), 0.0) > 0
    rows = full_names(view.layers)
    z, bar = coloured(values, view.scale)
    numbers = in_numbers(values, columns)
    told = _told(view)
    hover: dict[str, Any] = {"customdata": numbers, "hovertemplate": f"{told}<extra></extra>", "hoverongaps": False}
    made.add_trace(cell_map(columns, rows, z, bar, theme, **hover))
    unread = np.isnan(values) & ~bad
    if unread.any():
        words = "<b>%{y}</b><br>not read around step %{x:,.0f}<extra></extra>"
        made.add_trace(flat_map(columns, rows, unread, theme.unread[0], "not read", words))
    zero = (values == 0) & ~bad
    if view.scale.log and zero.any():
        made.add_trace(flat_map(columns, rows, zero, theme.zero, "exactly 0"))
    if bad.any():
        words = f"{told}<br>NaN or infinite values found<extra></extra>"
        made.add_trace(flat_map(columns, rows, bad, theme.bad, "NaN or infinite", words, customdata=numbers))
        _cross_out(made, columns, rows, bad, theme)
    mark_moments(made, view, theme, float(columns.edges[0]), float(columns.edges[-1]))
    shown = _named(view)
    names = tick_names(view.layers, view.guilty, theme)
    made.update_layout(
        height=min(TALLEST, max(LEAST, ROW * len(rows) + AROUND)),
        xaxis=axis(
            theme,
            with_notes("optimizer step", view, theme),
            range=[columns.edges[0], columns.edges[-1]],  # marks would leave a margin around the map
            showgrid=False,
            zeroline=False,
        ),
        yaxis=axis(
            theme,
            type="category",
            range=[len(rows) - 0.5, -0.5],
            showgrid=False,
            tickvals=[rows[i] for i in shown],
            ticktext=[names[i] for i in shown],
        ),
    )
    return made


def _told(view: Heat) -> str:
    """Return the pointer's text of a cell, from its numbers."""
    one = bool((view.width == 1)[(np.isfinite(view.values) | view.nonfinite).any(axis=0)].all())
    steps = "step %{customdata[0]:,}" if one else "steps %{customdata[0]:,} to %{customdata[1]:,}"
    unit = f" {safe(view.scale.unit)}" if view.scale.unit else ""
    return f"<b>%{{y}}</b><br>{safe(view.scale.label)}: %{{customdata[2]:.4g}}{unit}<br>{steps}"


def _cross_out(made: go.Figure, columns: Columns, rows: list[str], bad: Bools, theme: Theme) -> None:
    """Mark the first cell of each stretch of a row, so that it is distinguished without colour, too.

    The text that plotly can write into cells costs it 25 s for a map of 120 x 240.
    """
    at = np.argwhere(bad & ~np.pad(bad, ((0, 0), (1, 0)))[:, :-1])[:CROSSED]
    made.add_trace(
        graph_objects().Scatter(
            x=(columns.edges[at[:, 1]] + columns.edges[at[:, 1] + 1]) / 2,
            y=[rows[i] for i in at[:, 0].tolist()],
            mode="markers",
            marker={"symbol": "x-thin", "size": 7, "line": {"width": 1.5, "color": theme.ink}},
            hoverinfo="skip",
            showlegend=False,
        )
    )


def _named(view: Heat) -> list[int]:
    """Return which layers have a tick: all of few, else some at equal distances and the guilty."""
    count = len(view.layers)
    every = -(-count // ALL_NAMED)
    guilty = {i for i, layer in enumerate(view.layers) if layer in view.guilty}
    near = {i + d for i in guilty for d in range(1 - every, every)} - guilty
    return sorted(guilty | (set(range(0, count, every)) - near))
