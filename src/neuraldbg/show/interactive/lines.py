"""Series over steps: lines with their bands, and below them the events and what was not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.show.axes.downsample import thinned
from neuraldbg.show.interactive.frame import axis, event_lane, framed, graph_objects, mark_moments, with_notes
from neuraldbg.show.interactive.words import axis_title, faded, safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    import plotly.graph_objects as go

    from neuraldbg.show.forms import Bools, Ints, Line, Lines, Scale
    from neuraldbg.show.static.theme import Theme

NAMED = 12
"""With more lines than this only the guilty, the first and the last are named; the rest is a grey crowd."""
MOST = 2_000
"""Values drawn of a line, about one for each pixel; of more, the least and the largest of each stretch."""
MOST_BAD = 500
"""Marks of steps that were not finite, of a line."""
DASHES = ("solid", "dash", "dashdot", "dot")


def figure(view: Lines, theme: Theme) -> go.Figure:
    """Return the lines. A guilty layer's is thick, one of a crowd is grey; the pointer names each."""
    made = framed(view, theme, view.y.label)
    crowd = len(view.lines) > NAMED
    others = calm = 0
    for i, line in enumerate(view.lines):
        guilty = line.layer is not None and line.layer in view.guilty
        named = guilty or not crowd or i in (0, len(view.lines) - 1)
        if guilty:
            colour, pen = theme.strong, {"color": theme.strong, "width": 3}
        elif named:
            colour = theme.calm[calm % len(theme.calm)]
            pen = {"color": colour, "width": 1.6, "dash": DASHES[(calm // len(theme.calm)) % len(DASHES)]}
            calm += 1
        else:
            colour, pen = theme.crowd, {"color": theme.crowd, "width": 0.8}
            others += 1
        name = f"▶ {safe(line.name)}" if guilty else safe(line.name)
        _draw(made, thinned(line, MOST), view.y, name, pen, colour if named else "", legend=named)
    if others:
        made.add_trace(_key(f"{others} other lines", theme.crowd))
    bad = [
        (line.name, line.layer, int(step))
        for line in view.lines
        if line.nonfinite is not None
        for step in _some(np.unique(line.nonfinite))
    ]
    first, last = _range(view)
    margin = max(0.5, 0.02 * (last - first))
    reach: dict[str, Any] = {"range": [first - margin, last + margin]} if view.end else {}
    made.update_layout(
        xaxis=axis(theme, with_notes(safe(view.x.label), view, theme), zeroline=False, **reach),
        yaxis=axis(theme, axis_title(view.y), type="log" if view.y.log else "linear", exponentformat="power"),
        showlegend=len(view.lines) > 1,
    )
    event_lane(made, view, theme, bad)
    mark_moments(made, view, theme, first, last)
    return made


def _draw(
    made: go.Figure, line: Line, scale: Scale, name: str, pen: dict[str, Any], band: str, *, legend: bool
) -> None:
    go = graph_objects()
    finite = np.isfinite(line.values)
    alone = finite & ~np.append(finite[1:], False) & ~np.insert(finite[:-1], 0, False)  # a line would not show it
    ranges: dict[str, Any] | None = None
    if band and line.low is not None and line.high is not None:
        low = np.where(line.low > 0, line.low, line.values) if scale.log else line.low
        for part in _parts(finite & np.isfinite(low) & np.isfinite(line.high)):
            edge = {"x": line.steps[part], "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
            edge |= {"showlegend": False, "legendgroup": name}
            made.add_trace(go.Scatter(y=low[part], **edge))
            made.add_trace(go.Scatter(y=line.high[part], fill="tonexty", fillcolor=faded(band, 0.18), **edge))
        ranges = {
            "type": "data",
            "array": np.where(alone, line.high - line.values, 0.0),
            "arrayminus": np.where(alone, line.values - low, 0.0),
            "symmetric": False,
            "color": faded(band, 0.5),
            "width": 0,
        }
    data = np.empty((len(line.steps), 2), object)
    data[:, 0], data[:, 1] = line.layer, line.steps.tolist()
    made.add_trace(
        go.Scatter(
            x=line.steps,
            y=line.values,
            customdata=data,
            mode="lines+markers" if alone.any() else "lines",
            line=pen,
            marker={"size": np.where(alone, 6, 0)} if alone.any() else None,
            error_y=ranges if alone.any() else None,
            name=name,
            legendgroup=name,
            showlegend=legend,
            hovertemplate=f"%{{fullData.name}}<br>step %{{x}}<br>{axis_title(scale)}: %{{y:.4g}}<extra></extra>",
        )
    )


def _parts(there: Bools) -> list[slice]:
    """Return the stretches of neighbours of which each is there, of two at least: a band has no width at one."""
    framed = np.pad(there, 1).astype(np.int8)
    first, last = np.flatnonzero(np.diff(framed) == 1), np.flatnonzero(np.diff(framed) == -1)
    return [slice(a, b) for a, b in zip(first.tolist(), last.tolist(), strict=True) if b - a > 1]


def _key(name: str, colour: str) -> go.Scatter:
    return graph_objects().Scatter(x=[None], y=[None], mode="lines", line={"color": colour, "width": 0.8}, name=name)


def _some(steps: Ints) -> Sequence[int]:
    """All of few steps; of many, the first of each stretch, so that beginning and end are seen."""
    if len(steps) > MOST_BAD:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, MOST_BAD).astype(np.int64))]
    found: list[int] = steps.tolist()
    return found


def _range(view: Lines) -> tuple[float, float]:
    steps = [np.zeros(0), *(part for line in view.lines for part in (line.steps[:1], line.steps[-1:], *_ends(line)))]
    both = np.concatenate([*steps, [view.end - 1] if view.end else []])
    return (float(both.min()), float(both.max())) if len(both) else (0.0, 0.0)


def _ends(line: Line) -> tuple[Ints, ...]:
    return () if line.nonfinite is None else (line.nonfinite[:1], line.nonfinite[-1:])
