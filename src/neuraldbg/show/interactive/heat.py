"""Layers by steps as a map of colours, each column at its true steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.interactive.cells import cell_map, coloured, columns_of, flat_map, in_words, places, with_steps
from neuraldbg.show.interactive.frame import axis, framed, mark_moments, with_notes
from neuraldbg.show.interactive.words import full_names, safe, tick_names

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from neuraldbg.show.static.theme import Theme
    from neuraldbg.show.views.view import Heat

ALL_NAMED = 40
"""With more layers than this only some are named beside the map; the pointer names each."""
ROW, AROUND, LEAST, TALLEST = 22, 170, 300, 1200
"""Pixels: a layer, what surrounds the map, and the height at least and at most."""


def figure(view: Heat, theme: Theme) -> go.Figure:
    """Return the map. What was not read, and what held NaN or infinite values, has a colour and a name of its own."""
    made = framed(view, theme, view.scale.label)
    columns = columns_of(view.steps, view.width)
    values, bad = columns.spread(view.values), columns.spread(view.nonfinite.astype(float), 0.0) > 0
    rows = full_names(view.layers)
    z, bar = coloured(values, view.scale)
    told = np.char.add(in_words(values, safe(view.scale.unit)), np.where(bad, "<br>NaN or infinite values found", ""))
    made.add_trace(
        cell_map(
            columns,
            rows,
            z,
            bar,
            theme,
            customdata=places(view.layers, columns),
            text=with_steps(told, columns),
            hovertemplate=f"<b>%{{y}}</b><br>{safe(view.scale.label)}: %{{text}}<extra></extra>",
        )
    )
    unread = np.isnan(values) & ~bad
    if unread.any():
        made.add_trace(flat_map(columns, rows, unread, theme.unread[0], "not read"))
    zero = (values == 0) & ~bad
    if view.scale.log and zero.any():
        made.add_trace(flat_map(columns, rows, zero, theme.zero, "exactly 0"))
    if bad.any():
        made.add_trace(flat_map(columns, rows, bad, theme.bad, "NaN or infinite", "✕"))
    mark_moments(made, view, theme, float(columns.edges[0]), float(columns.edges[-1]))
    shown = _named(view)
    names = tick_names(view.layers, view.guilty, theme)
    made.update_layout(
        height=min(TALLEST, max(LEAST, ROW * len(rows) + AROUND)),
        xaxis=axis(theme, with_notes("optimizer step", view, theme), showgrid=False, zeroline=False),
        yaxis=axis(
            theme,
            type="category",
            autorange="reversed",
            showgrid=False,
            tickvals=[rows[i] for i in shown],
            ticktext=[names[i] for i in shown],
        ),
    )
    return made


def _named(view: Heat) -> list[int]:
    """Which layers have a tick: all of few, else some at equal distances and the guilty."""
    count = len(view.layers)
    every = -(-count // ALL_NAMED)
    guilty = {i for i, layer in enumerate(view.layers) if layer in view.guilty}
    near = {i + d for i in guilty for d in range(1 - every, every)} - guilty
    return sorted(guilty | (set(range(0, count, every)) - near))
