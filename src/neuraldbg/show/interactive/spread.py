"""The distribution of a site's values over time: the share in each bin, or else extremes, mean and deviation."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.format.safe_text import number
from neuraldbg.show.forms import Scale
from neuraldbg.show.interactive.cells import cell_map, coloured, columns_of, in_words, places, with_steps
from neuraldbg.show.interactive.frame import axis, framed, graph_objects, mark_moments, with_notes
from neuraldbg.show.interactive.words import axis_title, faded

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from neuraldbg.show.forms import Floats, Spread
    from neuraldbg.show.static.theme import Theme

TICKS = 12
"""Borders of bins that are named."""
SHARE = Scale("share of the values", "%")


def figure(view: Spread, theme: Theme) -> go.Figure:
    """Return the histograms as a map where there are some, all bins equally tall; else bands."""
    made = framed(view, theme, f"{view.layer} {view.scale.label}")
    if view.edges is not None and view.shares is not None:
        _histograms(made, view, view.edges, view.shares, theme)
    else:
        _bands(made, view, theme)
    first, last = float(view.steps[0]) - 0.5, float(max(view.steps[-1] + view.width[-1], view.end or 0)) - 0.5
    mark_moments(made, view, theme, first, last)
    made.update_layout(
        xaxis=axis(theme, with_notes("optimizer step", view, theme), zeroline=False, range=[first, last])
    )
    return made


def _histograms(made: go.Figure, view: Spread, edges: Floats, shares: Floats, theme: Theme) -> None:
    columns = columns_of(view.steps, view.width, view.end)
    percent = 100 * columns.spread(shares)
    z, bar = coloured(percent, SHARE)
    bins = [f" are {number(low)} to {number(high)}" for low, high in itertools.pairwise(edges.tolist())]
    told = np.char.add(in_words(percent, "%"), np.array(bins, str)[:, None])
    borders = np.arange(len(edges)) - 0.5
    cells = cell_map(
        columns,
        borders,
        z,
        bar,
        theme,
        customdata=places([view.layer] * len(shares), columns),
        text=with_steps(told, columns),
        hovertemplate="%{text}<extra></extra>",
    )
    top = float(z[np.isfinite(z)].max(initial=0.0))
    cells.update(zmin=0.0, zmax=top or 100.0)  # shares begin at 0, also where all values lie in one bin
    made.add_trace(cells)
    every = -(-len(edges) // TICKS)
    named = list(range(0, len(edges), every))
    made.update_layout(
        plot_bgcolor=theme.unread[0],
        yaxis=axis(
            theme,
            axis_title(view.scale),
            showgrid=False,
            tickvals=[i - 0.5 for i in named],
            ticktext=[number(float(edges[i])) for i in named],
        ),
    )


def _bands(made: go.Figure, view: Spread, theme: Theme) -> None:
    """Draw each column as bars from its least to its largest value: where nothing was read there is nothing."""
    go = graph_objects()
    colour = theme.calm[0]
    columns = columns_of(view.steps, view.width, view.end)
    read = columns.which >= 0
    at = columns.which[read]
    left, right = columns.edges[:-1][read], columns.edges[1:][read]
    bands = (
        ("minimum to maximum", view.low, view.high, 0.2),
        ("mean ± one standard deviation", view.mean - view.std, view.mean + view.std, 0.35),
    )
    for name, low, high, share in bands:
        made.add_trace(
            go.Bar(
                x=(left + right) / 2,
                width=right - left,
                base=low[at],
                y=(high - low)[at],
                name=name,
                marker={"color": faded(colour, share), "line": {"width": 0}},
                hoverinfo="skip",
            )
        )
    told = np.stack([in_words(part[at]) for part in (view.low, view.high, view.std)], axis=1)
    places = [[view.layer, step] for step in view.steps[at].tolist()]
    data = [[*place, *words] for place, words in zip(places, told.tolist(), strict=True)]
    gaps = np.zeros(0, np.int64) if view.gaps is None else view.gaps
    x, y = np.insert((left + right) / 2, gaps + 1, right[gaps]), np.insert(view.mean[at], gaps + 1, np.nan)
    for gap in gaps[::-1].tolist():
        data.insert(gap + 1, [None, None, "", "", ""])
    finite = np.isfinite(y)
    alone = finite & ~np.append(finite[1:], False) & ~np.insert(finite[:-1], 0, False)
    made.add_trace(
        go.Scatter(
            x=x,
            y=y,
            name="mean",
            customdata=data,
            mode="lines+markers" if alone.any() else "lines",
            marker={"size": np.where(alone, 6, 0)} if alone.any() else None,
            line={"color": colour, "width": 2},
            hovertemplate="step %{customdata[1]}<br>mean %{y:.4g}<br>%{customdata[2]} to %{customdata[3]}"
            "<br>standard deviation %{customdata[4]}<extra></extra>",
        )
    )
    made.update_layout(
        yaxis=axis(theme, axis_title(view.scale), exponentformat="power"), barmode="overlay", bargap=0, showlegend=True
    )
