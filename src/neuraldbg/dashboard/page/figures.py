"""The figures of the page: a View in, a plotly figure of ``interactive`` out, adapted to a live page.

``layout.meta`` of the figure holds the meaning of a click in the browser (see ``assets/page.js``). A figure keeps the
zoom when it is drawn again, and leaves its title and its notes to the page.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.dashboard.page.components import smoothing
from neuraldbg.dashboard.page.tab import Drawing
from neuraldbg.show.axes.downsample import thinned
from neuraldbg.show.forms import Bars, Heat, Lines, SmoothedLines, Spread, Timeline
from neuraldbg.show.interactive.draw import figure
from neuraldbg.show.views.pair import INPUT
from neuraldbg.show.views.smoothing import smoothed

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.show.forms import View

ROWS = 36
"""Layers of a figure of bars whose names have room in the tallest figure."""
NAME, AROUND = 14, 130
"""Height in pixels of a name beside a row, and of what is around the rows."""
HEIGHT, TALLEST = 340, 760
"""Height in pixels of a figure without one of its own, and of any figure at most."""


def drawn(scene: Scene, name: str, controls: Any = None, title: str = "", height: int = 0, **choice: Any) -> Drawing:
    """Draw a view as a pane; ``height`` in pixels if it is not the figure's own."""
    return pictured(scene, scene.view(name, **choice), tuple(sorted(choice.items())), controls, title, height)


def curves(scene: Scene, view: View, asked: tuple[Any, ...] = (), controls: Any = (), **more: Any) -> Drawing:
    """Draw a view of lines as a pane, smoothed as the address says and with links to smooth it otherwise."""
    assert isinstance(view, Lines)
    if view.empty:
        return pictured(scene, view, asked, list(controls), **more)
    return pictured(scene, smoothed(view, scene.weight), asked, [*controls, smoothing(scene)], **more)


def pictured(
    scene: Scene, view: View, asked: tuple[Any, ...] = (), controls: Any = None, title: str = "", height: int = 0,
    *, alone: bool = False,
) -> Drawing:  # fmt: skip
    """Draw a view of the run as a pane; ``asked`` are the other values that it depends on, for the cache.

    ``alone`` is True for a figure of other runs, which neither follows nor changes the range of steps and the step.
    """
    heading = title or view.title
    if view.empty:
        return Drawing(heading, empty=view.empty, notes=view.notes, controls=controls)
    asked = (*asked, scene.state.first, scene.state.last, scene.state.step, scene.layer, scene.state.smooth, height)
    key = (scene.entry.key, scene.moment.version, view.name, scene.theme, asked)
    content = scene.figures.get(key, lambda: _figure(scene, view, height, alone=alone))
    return Drawing(heading, content, view.notes, controls=controls, key=repr(key))


def _figure(scene: Scene, view: View, height: int, *, alone: bool) -> dict[str, Any]:
    # Title and notes are text of the page, where they wrap and can be read aloud.
    drawable = replace(view, title="", notes=())
    if isinstance(drawable, Lines):
        drawable = replace(drawable, lines=tuple(thinned(line, scene.points) for line in drawable.lines))
    if isinstance(drawable, SmoothedLines):
        drawable = replace(drawable, measured=tuple(thinned(line, scene.points) for line in drawable.measured))
    made = figure(drawable, theme=scene.theme)
    # ``to_dict`` copies all values of a figure one by one; most of them are the objects of ``customdata``.
    told = {i: trace.customdata for i, trace in enumerate(made.data) if _objects(trace.customdata)}
    for i in told:
        made.data[i].customdata = None
    plain: dict[str, Any] = made.to_dict()
    for i, data in told.items():
        plain["data"][i]["customdata"] = data
    laid = _laid(scene, view, made, {**plain["layout"], **({"height": height} if height else {})}, alone=alone)
    return {**plain, "layout": laid}


def _objects(data: Any) -> bool:
    return isinstance(data, np.ndarray) and data.dtype.kind == "O"


def _laid(scene: Scene, view: View, made: Any, layout: dict[str, Any], *, alone: bool) -> dict[str, Any]:
    """Return the layout of a figure for the page, as a dict: plotly itself validates all of it at each change."""
    state = scene.state
    over_time = isinstance(view, (Heat, Lines, Spread)) and not alone
    laid = {
        **layout,
        "height": min(TALLEST, layout.get("height") or HEIGHT),
        "legend": {
            **layout["legend"], "orientation": "h", "xref": "paper", "x": 0, "yref": "container", "y": 0,
            "yanchor": "bottom",
        },
        "meta": {"time": over_time, "alone": alone, **_cells(view, made.data)},
        "uirevision": scene.entry.key,
    }  # fmt: skip
    # One ``uirevision`` per axis: a new range of steps resets that of the steps, and keeps the zoom of the values.
    names = {
        "xaxis": f"{state.first}-{state.last}" if over_time else view.name,
        "yaxis": _values(scene, view, layout),
    }
    for name, axis in layout.items():
        if name[:5] in names and isinstance(axis, dict):
            laid[name] = {**axis, "uirevision": names[name[:5]]}
            if name == "yaxis" and (level := _level(view)):
                laid[name]["range"] = sorted((0.0, 2 * level))
            if name == "yaxis" and isinstance(view, (Bars, Timeline)):
                laid[name] |= _few_names(axis, laid["height"])
            if name[0] == "x" and over_time and state.first is not None and state.last is not None:
                laid[name]["range"] = [state.first - 0.5, state.last + 0.5]
    return laid


def _few_names(axis: dict[str, Any], height: float) -> dict[str, Any]:
    """Return the ticks of rows as far as their names have room: of more, each second, third, ... and the guilty."""
    values, names = axis.get("tickvals") or (), axis.get("ticktext") or ()
    every = math.ceil(NAME * len(values) / max(NAME, height - AROUND))
    kept = [i for i, name in enumerate(names) if i % every == 0 or (name.startswith("<b") and i % every > every // 2)]
    return {"tickvals": [values[i] for i in kept], "ticktext": [names[i] for i in kept]}


def _values(scene: Scene, view: View, layout: dict[str, Any]) -> str:
    """Return the ``uirevision`` of the value axis: while it stays the same, a zoom of the values stays valid."""
    beside = scene.beside.entry.key if scene.beside else ""
    axis = layout.get("yaxis", {})
    rows = zlib.crc32("\n".join(axis.get("tickvals") or ()).encode()) if axis.get("type") == "category" else 0
    return f"{scene.entry.key} {beside} {scene.state.tab} {view.name} {view.title} {axis.get('type')} {rows}"


def _level(view: View) -> float:
    """Return the value of lines that are all constant; 0 for others. Plotly draws 0.001 as the middle of -1 to 1."""
    if not isinstance(view, Lines) or view.y.log:
        return 0.0
    values = np.concatenate([np.zeros(0), *(line.values[np.isfinite(line.values)] for line in view.lines)])
    return float(values[0]) if len(values) and (values == values[0]).all() else 0.0


def _cells(view: View, made: Any) -> dict[str, Any]:
    """Return the meaning of the cells of a heat map: the first step of each column, and the layer of each row."""
    if not made or made[0].type != "heatmap":
        return {}
    starts = [int(edge + 0.5) for edge in made[0].x[:-1]]
    if isinstance(view, Heat):
        return {"starts": starts, "labels": list(made[0].y), "rows": [_layer(name) for name in view.layers]}
    return {"starts": starts, "layer": view.layer if isinstance(view, Spread) else None}


def _layer(row: str) -> str | None:
    """Return the layer of a row; None for the inputs."""
    return None if row == INPUT else row


def zoomed(figure: Any, zooms: dict[str, Any]) -> Any:
    """Return a figure with the range of values that a person has zoomed to; ``zooms`` holds ranges by ``uirevision``.

    Dash writes a zoom into its copy of the figure, and plotly's ``uirevision`` then takes it for a range of ours.
    """
    axis = figure.get("layout", {}).get("yaxis", {}) if isinstance(figure, dict) else {}
    ends = zooms.get(axis.get("uirevision", ""))
    if not isinstance(ends, list) or len(ends) != 2:
        return figure
    if not all(isinstance(end, (int, float)) and math.isfinite(end) for end in ends):
        return figure
    return {**figure, "layout": {**figure["layout"], "yaxis": {**axis, "range": ends, "autorange": False}}}
