"""Common parts of figures: title, notes, background, the moment of failure, and the lane of events below the data."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

from neuraldbg.errors import MissingExtra
from neuraldbg.show.interactive.words import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    import plotly.graph_objects as go

    from neuraldbg.show.forms import Mark, View
    from neuraldbg.show.static.theme import Theme

TITLE, NOTE = 70, 84
"""Characters of a line of the title and of the notes."""
LANES = 7
"""Rows of the lane of events; events of more kinds share the last one."""
LANE_SHARE = 0.055
"""Height of each row of the lane, as a share of the figure's."""
LEFT, EDGE, LETTER, SCALE, LEGEND = 72, 18, 7.8, 72, 34
"""Pixels: beside an axis of numbers; beside names, and each letter; a colour scale without its letters; a legend."""
TAG = re.compile("<[^>]*>|&[a-z]+;")
NOT_FINITE, OTHERS = "NaN or infinite", "other events"
LANE: dict[str, Any] = {"yaxis": "y2", "showlegend": False, "hovertemplate": "%{text}<extra></extra>"}
DASHES = {"failure": "dash", "chosen": "dot"}


def graph_objects() -> Any:
    """Return plotly's module. MissingExtra is raised if it is not installed."""
    try:
        import plotly.graph_objects as found  # noqa: PLC0415 (an extra)
    except ImportError:
        raise MissingExtra("a figure to click in", "dashboard") from None
    return found


def framed(view: View, theme: Theme, revision: str) -> go.Figure:
    """Return an empty figure with title and background. A figure of the same ``revision`` keeps a person's zoom."""
    go = graph_objects()
    title = "<br>".join(safe(line) for line in textwrap.wrap(view.title, TITLE, max_lines=2, placeholder=" …"))
    return go.Figure(
        layout={
            "template": go.layout.Template(),  # plotly's own would add 7 kB to every figure
            "title": {"text": title, "x": 0.0, "xref": "paper", "xanchor": "left", "font": {"size": 15}},
            "font": {"color": theme.ink, "size": 12, "family": "system-ui, sans-serif"},
            "paper_bgcolor": theme.ground,
            "plot_bgcolor": theme.ground,
            "colorway": list(theme.calm),
            "margin": {"l": LEFT, "r": 30, "t": 64 if title else 28, "b": 50},
            "hovermode": "closest",
            "hoverlabel": {"bgcolor": theme.ground, "font": {"color": theme.ink}, "align": "left", "namelength": -1},
            "legend": {
                "orientation": "h",
                "yref": "container",
                "y": 0.01,
                "yanchor": "bottom",
                "traceorder": "normal",
                "font": {"size": 11},
            },
            "uirevision": safe(f"{view.name} {revision}"),
        }
    )


def axis(theme: Theme, title: str = "", **more: Any) -> dict[str, Any]:
    """Return an axis as all figures have it."""
    return {
        "title": {"text": title, "standoff": 8},
        "gridcolor": theme.grid,
        "linecolor": theme.muted,
        "zerolinecolor": theme.grid,
        "tickfont": {"size": 11},
        "automargin": True,
        **more,
    }


def with_notes(title: str, view: View, theme: Theme) -> str:
    """Return the title of the lower axis with the notes of the view below it, in small type."""
    lines = [safe(line) for note in view.notes for line in textwrap.wrap(note, NOTE)]
    return "<br>".join([title, *(f'<span style="font-size:11px;color:{theme.muted}">{line}</span>' for line in lines)])


def say_empty(figure: go.Figure, view: View, theme: Theme) -> go.Figure:
    """Write into an empty figure the reason that it is empty."""
    words = "<br>".join(safe(line) for line in textwrap.wrap(view.empty, 60))
    figure.add_annotation(
        text=words, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"color": theme.muted, "size": 14}
    )
    figure.update_layout(xaxis={"visible": False}, yaxis={"visible": False})
    return figure


def roomy(figure: go.Figure) -> go.Figure:
    """Give a figure the margins that its words need, rather a little more.

    Where they need more than there is plotly finds out when all is drawn, and draws all of it again.
    """
    layout, margin = figure.layout, figure.layout.margin
    names = [len(TAG.sub("", name)) for one in figure.select_yaxes() for name in one.ticktext or ()]
    scales = [trace.colorbar for trace in figure.data if trace.type == "heatmap" and trace.showscale is not False]
    ticks = [len(tick) for scale in scales for tick in scale.ticktext or ("0.000",)]
    legend = layout.showlegend is not False and any(trace.showlegend for trace in figure.data)
    layout.margin.update(
        l=max([LEFT, *(round(EDGE + LETTER * count) for count in names)]),
        r=round(SCALE + LETTER * max(ticks)) if ticks else margin.r,
        b=margin.b + (LEGEND if legend or layout.showlegend else 0),
    )
    return figure


def mark_moments(figure: go.Figure, view: View, theme: Theme, first: float, last: float) -> None:
    """Draw failure and chosen step as lines from top to bottom, named above the data."""
    span = (last - first) or 1.0
    for mark in view.marks:
        if mark.role not in DASHES or not first <= mark.step <= last:
            continue
        share = (mark.step - first) / span
        figure.add_shape(
            type="line",
            name=mark.role,
            x0=mark.step,
            x1=mark.step,
            y0=0,
            y1=1,
            yref="paper",
            line={"color": theme.ink, "width": 1.3, "dash": DASHES[mark.role]},
        )
        figure.add_annotation(
            x=mark.step,
            y=1,
            yref="paper",
            yanchor="bottom",
            yshift=2 if mark.role == "failure" else -14,
            xanchor="left" if share < 0.5 else "right",
            text=f"<b>{safe(mark.label)}</b>",
            showarrow=False,
            font={"size": 11, "color": theme.ink},
            bgcolor=theme.ground,
        )


def event_lane(figure: go.Figure, view: View, theme: Theme, bad: Sequence[tuple[str, str | None, int]] = ()) -> None:
    """Draw events as stretches of time in rows below the data; ``bad``: name, layer and step of what was not finite."""
    events = [mark for mark in view.marks if mark.role not in DASHES]
    rows = list(dict.fromkeys(mark.label for mark in events))
    if len(rows) > LANES:
        rows = [*rows[: LANES - 1], OTHERS]
    names = [*([NOT_FINITE] if bad else []), *rows]
    if not names:
        figure.update_layout(yaxis={"domain": [0, 1]})
        return
    place = {name: i for i, name in enumerate(names)}
    if events:
        figure.add_trace(_stretches(events, [place.get(mark.label, len(names) - 1) for mark in events], theme))
    if bad:
        figure.add_trace(_crosses(bad, theme))
    top = LANE_SHARE * len(names)
    ticks: dict[str, Any] = {"tickvals": list(range(len(names))), "ticktext": [safe(name) for name in names]}
    reach: dict[str, Any] = {"domain": [0, top], "range": [len(names) - 0.5, -0.5]}
    figure.update_layout(
        yaxis={"domain": [top + 0.04, 1]},
        yaxis2=axis(theme, fixedrange=True, zeroline=False, **reach, **ticks),
        xaxis={"anchor": "y2"},
    )


def _stretches(events: Sequence[Mark], rows: Sequence[int], theme: Theme) -> go.Scatter:
    """Events, each from its first to its last step, with a gap after each."""
    points: list[tuple[int | None, int | None, str, list[str | int | None] | None]] = []
    for mark, row in zip(events, rows, strict=True):
        told = _told(mark)
        data: list[str | int | None] = [mark.layer, mark.step]
        points += [(step, row, told, data) for step in (mark.step, mark.step if mark.last is None else mark.last)]
        points.append((None, None, "", None))
    x, y, text, customdata = zip(*points, strict=True)
    return graph_objects().Scatter(
        x=x,
        y=y,
        text=text,
        customdata=customdata,
        mode="lines+markers",
        line={"color": theme.calm[4], "width": 5},
        marker={"size": 8, "color": theme.calm[4], "line": {"color": theme.ink, "width": 1}},
        name="events",
        **LANE,
    )


def _crosses(bad: Sequence[tuple[str, str | None, int]], theme: Theme) -> go.Scatter:
    """Return the crosses of NaN and infinite values, in the first row."""
    return graph_objects().Scatter(
        x=[step for _, _, step in bad],
        y=[0] * len(bad),
        text=[f"{safe(name)}<br>{NOT_FINITE} at step {step:,}" for name, _, step in bad],
        customdata=[[layer, step] for _, layer, step in bad],
        mode="markers",
        marker={"symbol": "x", "size": 7, "color": theme.bad},
        name=NOT_FINITE,
        **LANE,
    )


def _told(mark: Mark) -> str:
    where = f"<br>layer {safe(mark.layer)}" if mark.layer else ""
    last = f" to {mark.last:,}" if mark.last is not None and mark.last != mark.step else ""
    return f"<b>{safe(mark.label)}</b>{where}<br>step {mark.step:,}{last}"
