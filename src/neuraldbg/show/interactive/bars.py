"""Values of each layer as bars from left to right, with the limits that a detector judges by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.format.safe_text import ZERO
from neuraldbg.show.interactive.frame import axis, framed, graph_objects, with_notes
from neuraldbg.show.interactive.words import axis_title, full_names, safe, tick_names

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from neuraldbg.show.forms import Bars
    from neuraldbg.show.static.theme import Theme

PATTERNS = ("", "/", ".", "x")
ROW, AROUND, LEAST, TALLEST = 20, 150, 300, 1600
"""Sizes in pixels: a bar, the surroundings of all bars, least height, largest height."""


def figure(view: Bars, theme: Theme) -> go.Figure:
    """Return the bars, top to bottom in data-flow order. A layer without a value says so beside its name."""
    go = graph_objects()
    made = framed(view, theme, view.scale.label)
    rows = full_names(view.layers)
    words = [safe(words) for words in view.words] or None
    for i, bar in enumerate(view.bars):
        calm = theme.calm[i % len(theme.calm)]
        made.add_trace(
            go.Bar(
                x=np.where(np.isfinite(bar.values), bar.values, np.nan),
                y=rows,
                orientation="h",
                name=safe(bar.name),
                customdata=[[layer if view.of_layers else None, view.step] for layer in view.layers],
                text=words,
                textposition="none",
                marker={
                    "color": [
                        theme.strong if layer in view.guilty and not view.stacked else calm for layer in view.layers
                    ],
                    "pattern": {"shape": PATTERNS[i % len(PATTERNS)]},
                },
                hovertemplate=f"<b>%{{y}}</b><br>%{{fullData.name}}: %{{x:.4g}} {safe(view.scale.unit)}"
                + ("<br>%{text}" if words else "")
                + "<extra></extra>",
            )
        )
    _limits(made, view, theme)
    made.update_layout(
        height=min(TALLEST, max(LEAST, ROW * len(rows) * (1 if view.stacked else max(1, len(view.bars))) + AROUND)),
        barmode="stack" if view.stacked else "group",
        bargap=0.25,
        showlegend=len(view.bars) > 1,
        xaxis=axis(
            theme,
            with_notes(axis_title(view.scale), view, theme),
            type="log" if view.scale.log else "linear",
            exponentformat="SI" if view.scale.unit == "B" else "power",
        ),
        yaxis=axis(theme, type="category", autorange="reversed", tickvals=rows, ticktext=_ticks(view, theme)),
    )
    return made


def _ticks(view: Bars, theme: Theme) -> list[str]:
    """Return the names, with a note on missing values, which no bar can show."""
    values = np.array([bar.values for bar in view.bars]).reshape(len(view.bars), -1)
    missing, bad = np.isnan(values).all(axis=0), np.isinf(values).any(axis=0)
    lost = [_zeros(view, i) for i in range(len(view.layers))]
    return [
        name + (f" ({safe(view.missing)})" if missing[i] else " (not finite)" if bad[i] else lost[i])
        for i, name in enumerate(tick_names(view.layers, view.guilty, theme))
    ]


def _zeros(view: Bars, layer: int) -> str:
    """Write which bars of a layer have no place on a log axis; without names if it is all of them."""
    zero = [bar.name for bar in view.bars if bar.values[layer] == 0]
    if not view.scale.log or not zero:
        return ""
    known = sum(not np.isnan(bar.values[layer]) for bar in view.bars)
    return f" ({ZERO})" if len(zero) == known else f" ({ZERO}: {safe(', '.join(zero))})"


def _limits(made: go.Figure, view: Bars, theme: Theme) -> None:
    for i, (name, value) in enumerate(view.limits):
        made.add_vline(x=value, line={"color": theme.ink, "width": 1.3, "dash": "dash"})
        made.add_annotation(
            x=np.log10(value) if view.scale.log and value > 0 else value,
            y=1,
            yref="paper",
            yanchor="bottom",
            yshift=2 + 13 * (i % 2),  # two limits may stand near each other
            text=f"{safe(name)} {value:.4g} {safe(view.scale.unit)}".rstrip(),
            showarrow=False,
            font={"size": 11, "color": theme.ink},
        )
