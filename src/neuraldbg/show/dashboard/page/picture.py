"""View -> a figure of the page: what ``interactive`` draws, with what belongs to a live page.

The figure says in ``layout.meta`` what a click in the browser means (see ``assets/page.js``), keeps a person's zoom
when it is drawn again, and leaves its title and its notes to the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.show.dashboard.page.tab import Drawing
from neuraldbg.show.interactive.draw import figure
from neuraldbg.show.views.view import Bars, Heat, Lines, Spread

if TYPE_CHECKING:
    from neuraldbg.show.dashboard.page.scene import Scene
    from neuraldbg.show.views.view import View

HEIGHT = 300
"""Pixels."""
ROW, EDGE, TALLEST = 17, 130, 720
"""Pixels of a heat map: a layer, what surrounds the layers, and at most."""


def drawn(scene: Scene, name: str, controls: Any = None, title: str = "", **choice: Any) -> Drawing:
    """Draw a view as a pane."""
    view = scene.view(name, **choice)
    heading = title or view.title
    if view.empty:
        return Drawing(heading, empty=view.empty, notes=view.notes, controls=controls)
    asked = (*sorted(choice.items()), scene.state.first, scene.state.last, scene.state.step, scene.layer)
    key = (scene.entry.key, scene.moment.version, name, scene.theme, asked)
    return Drawing(heading, scene.figures.get(key, lambda: _figure(scene, view)), view.notes, controls=controls)


def _figure(scene: Scene, view: View) -> dict[str, Any]:
    made = figure(view, theme=scene.theme)
    over_time = isinstance(view, (Heat, Lines, Spread))
    state = scene.state
    made.update_layout(
        title=None,
        height=_height(view),
        margin={"l": 8, "r": 12, "t": 28, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        meta={"time": over_time},
        # One name for each axis: choosing a range moves the one, and leaves what was done to the other.
        uirevision=f"{scene.entry.key}",
    )
    made.update_xaxes(automargin=True, uirevision=f"{state.first}-{state.last}" if over_time else view.name)
    made.update_yaxes(automargin=True, uirevision=view.title)
    if over_time and state.first is not None and state.last is not None:
        made.update_xaxes(range=[state.first - 0.5, state.last + 0.5])
    plain: dict[str, Any] = made.to_plotly_json()
    return plain


def _height(view: View) -> int:
    if isinstance(view, Heat):
        return min(TALLEST, max(HEIGHT - 80, EDGE + ROW * len(view.layers)))
    if isinstance(view, Bars):
        return HEIGHT + 40
    return HEIGHT
