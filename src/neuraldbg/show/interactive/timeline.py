"""A timeline of one step as a figure: a row for the step and one for each layer; the pointer tells each span."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.show.interactive.bars import AROUND, LEAST, PATTERNS, ROW, TALLEST
from neuraldbg.show.interactive.frame import axis, framed, graph_objects, with_notes
from neuraldbg.show.interactive.words import axis_title, full_names, safe, tick_names

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from neuraldbg.show.forms import Timeline
    from neuraldbg.show.static.theme import Theme


def figure(view: Timeline, theme: Theme) -> go.Figure:
    """Return the spans as bars that float, a trace for each part."""
    made = framed(view, theme, view.scale.label)
    rows = full_names(view.rows)
    words = [safe(words) for words in view.words]
    for part, name in enumerate(view.parts):
        spans = [span for span in view.spans if span.part == part]
        told: dict[str, Any] = {"text": [words[span.row] for span in spans], "textposition": "none"} if words else {}
        made.add_trace(
            graph_objects().Bar(
                base=[span.start for span in spans],
                x=[span.end - span.start for span in spans],
                y=[rows[span.row] for span in spans],
                orientation="h",
                name=safe(name),
                customdata=[[view.layers[span.row], view.step] for span in spans],
                marker={
                    "color": theme.calm[part % len(theme.calm)],
                    "pattern": {"shape": PATTERNS[part % len(PATTERNS)]},
                    "line": {"width": 0},
                },
                hovertemplate=f"<b>%{{y}}</b><br>%{{fullData.name}}: from %{{base:.4g}} to %{{x:.4g}} "
                f"{safe(view.scale.unit)}{'<br>%{text}' if words else ''}<extra></extra>",
                **told,
            )
        )
    strong = [row for row, layer in zip(view.rows, view.layers, strict=True) if layer in view.guilty]
    ticks = tick_names(view.rows, strong, theme)
    made.update_layout(
        height=min(TALLEST, max(LEAST, ROW * len(rows) + AROUND)),
        barmode="overlay",
        bargap=0.2,
        showlegend=True,
        xaxis=axis(theme, with_notes(axis_title(view.scale), view, theme), range=[0, 1.01 * (view.end or 1.0)]),
        yaxis=axis(
            theme,
            type="category",
            categoryorder="array",
            categoryarray=rows,
            range=[len(rows) - 0.5, -0.5],
            tickvals=rows,
            ticktext=ticks,
        ),
    )
    return made
