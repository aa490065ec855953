"""View -> a figure of the page: what ``interactive`` draws, with what belongs to a live page.

The figure says in ``layout.meta`` what a click in the browser means (see ``assets/page.js``), keeps a person's zoom
when it is drawn again, and leaves its title and its notes to the page.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.dashboard.page.tab import Drawing
from neuraldbg.show.axes.downsample import thinned
from neuraldbg.show.forms import Heat, Lines, Spread
from neuraldbg.show.interactive.draw import figure
from neuraldbg.show.views.pair import INPUT

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.show.forms import View

HEIGHT, TALLEST = 340, 760
"""Pixels of a figure that says nothing of its height, and at most: what is taller is drawn smaller."""


def drawn(scene: Scene, name: str, controls: Any = None, title: str = "", **choice: Any) -> Drawing:
    """Draw a view as a pane."""
    return pictured(scene, scene.view(name, **choice), tuple(sorted(choice.items())), controls, title)


def pictured(scene: Scene, view: View, asked: tuple[Any, ...] = (), controls: Any = None, title: str = "") -> Drawing:
    """Draw a view of the run; ``asked`` is what else it was made of."""
    heading = title or view.title
    if view.empty:
        return Drawing(heading, empty=view.empty, notes=view.notes, controls=controls)
    asked = (*asked, scene.state.first, scene.state.last, scene.state.step, scene.layer)
    key = (scene.entry.key, scene.moment.version, view.name, scene.theme, asked)
    content = scene.figures.get(key, lambda: _figure(scene, view))
    return Drawing(heading, content, view.notes, controls=controls, key=repr(key))


def _figure(scene: Scene, view: View) -> dict[str, Any]:
    # Title and notes are words of the page, where they wrap and can be read aloud.
    drawable = replace(view, title="", notes=())
    if isinstance(drawable, Lines):
        drawable = replace(drawable, lines=tuple(thinned(line, scene.points) for line in drawable.lines))
    made = figure(drawable, theme=scene.theme)
    # Becoming plain values copies all that a figure holds, one by one: objects that the pointer tells are most of it.
    told = {i: trace.customdata for i, trace in enumerate(made.data) if _objects(trace.customdata)}
    for i in told:
        made.data[i].customdata = None
    plain: dict[str, Any] = made.to_dict()
    for i, data in told.items():
        plain["data"][i]["customdata"] = data
    return {**plain, "layout": _laid(scene, view, made, plain["layout"])}


def _objects(data: Any) -> bool:
    return isinstance(data, np.ndarray) and data.dtype.kind == "O"


def _laid(scene: Scene, view: View, made: Any, layout: dict[str, Any]) -> dict[str, Any]:
    """Return the layout of a figure as the page has it: plotly's own way to change one checks all of it, each time."""
    state = scene.state
    over_time = isinstance(view, (Heat, Lines, Spread))
    laid = {
        **layout,
        "height": min(TALLEST, layout.get("height") or HEIGHT),
        "legend": {
            **layout["legend"], "orientation": "h", "xref": "paper", "x": 0, "yref": "container", "y": 0,
            "yanchor": "bottom",
        },
        "meta": {"time": over_time, **_cells(view, made.data)},
        "uirevision": scene.entry.key,
    }  # fmt: skip
    # A name for each axis: choosing a range of steps moves the one, and leaves what was done to the other.
    names = {
        "xaxis": f"{state.first}-{state.last}" if over_time else view.name,
        "yaxis": _values(scene, view, layout),
    }
    for name, axis in layout.items():
        if name[:5] in names and isinstance(axis, dict):
            laid[name] = {**axis, "uirevision": names[name[:5]]}
            if name[0] == "x" and over_time and state.first is not None and state.last is not None:
                laid[name]["range"] = [state.first - 0.5, state.last + 0.5]
    return laid


def _values(scene: Scene, view: View, layout: dict[str, Any]) -> str:
    """A name for what the values of a figure are: the same places on it mean the same as long as this is the same."""
    beside = scene.beside.entry.key if scene.beside else ""
    axis = layout.get("yaxis", {})
    rows = zlib.crc32("\n".join(axis.get("tickvals") or ()).encode()) if axis.get("type") == "category" else 0
    return f"{scene.entry.key} {beside} {scene.state.tab} {view.name} {view.title} {axis.get('type')} {rows}"


def _cells(view: View, made: Any) -> dict[str, Any]:
    """Return what the cells of a map stand for: the first step of each column, and the layer of each row."""
    if not made or made[0].type != "heatmap":
        return {}
    starts = [int(edge + 0.5) for edge in made[0].x[:-1]]
    if isinstance(view, Heat):
        return {"starts": starts, "labels": list(made[0].y), "rows": [_layer(name) for name in view.layers]}
    return {"starts": starts, "layer": view.layer if isinstance(view, Spread) else None}


def _layer(row: str) -> str | None:
    """The layer that a row stands for; the inputs belong to none."""
    return None if row == INPUT else row


def zoomed(figure: Any, zooms: dict[str, Any]) -> Any:
    """Return a figure with the values that a person has zoomed to; ``zooms`` holds ranges by what they are of.

    Dash writes a zoom into the figure that it holds, after which plotly's own ``uirevision`` takes it for ours.
    """
    axis = figure.get("layout", {}).get("yaxis", {}) if isinstance(figure, dict) else {}
    ends = zooms.get(axis.get("uirevision", ""))
    if not isinstance(ends, list) or len(ends) != 2:
        return figure
    if not all(isinstance(end, (int, float)) and math.isfinite(end) for end in ends):
        return figure
    return {**figure, "layout": {**figure["layout"], "yaxis": {**axis, "range": ends, "autorange": False}}}
