"""View -> a figure of the page: what ``interactive`` draws, with what belongs to a live page.

The figure says in ``layout.meta`` what a click in the browser means (see ``assets/page.js``), keeps a person's zoom
when it is drawn again, and leaves its title and its notes to the page.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neuraldbg.show.dashboard.page.tab import Drawing
from neuraldbg.show.interactive.draw import figure
from neuraldbg.show.thin import thinned
from neuraldbg.show.views.pair import INPUT
from neuraldbg.show.views.view import Heat, Lines, Spread

if TYPE_CHECKING:
    from neuraldbg.show.dashboard.page.scene import Scene
    from neuraldbg.show.views.view import View

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
    over_time = isinstance(view, (Heat, Lines, Spread))
    state = scene.state
    made.update_layout(
        height=min(TALLEST, made.layout.height or HEIGHT),
        legend={"orientation": "h", "xref": "paper", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom"},
        meta={"time": over_time, **_cells(view, made)},
        # A name for each axis: choosing a range of steps moves the one, and leaves what was done to the other.
        uirevision=scene.entry.key,
    )
    made.update_xaxes(uirevision=f"{state.first}-{state.last}" if over_time else view.name)
    made.update_yaxes(uirevision=view.title)
    if over_time and state.first is not None and state.last is not None:
        made.update_xaxes(range=[state.first - 0.5, state.last + 0.5])
    # Becoming plain values copies all that a figure holds, one by one; what the pointer says of cells is most of it.
    told = [trace.customdata for trace in made.data]
    made.update_traces(customdata=None)
    plain: dict[str, Any] = made.to_plotly_json()
    for trace, data in zip(plain["data"], told, strict=True):
        if data is not None:
            trace["customdata"] = data
    return plain


def _cells(view: View, made: Any) -> dict[str, Any]:
    """What the cells of a map stand for: the first step of each column, and the layer of each row."""
    if not made.data or made.data[0].type != "heatmap":
        return {}
    starts = [int(edge + 0.5) for edge in made.data[0].x[:-1]]
    if isinstance(view, Heat):
        return {"starts": starts, "labels": list(made.data[0].y), "rows": [_layer(name) for name in view.layers]}
    return {"starts": starts, "layer": view.layer if isinstance(view, Spread) else None}


def _layer(row: str) -> str | None:
    """The layer that a row stands for; the inputs belong to none."""
    return None if row == INPUT else row
