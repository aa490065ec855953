"""The tab of anomalies: the events as a table, and non-finite values over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from neuraldbg.dashboard.page.components import choices, go, layer_link, step_link, table
from neuraldbg.dashboard.page.figures import drawn
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab
from neuraldbg.show.format.safe_text import number, plain
from neuraldbg.show.forms import Heat

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.nouns import Event

MOST = 200
"""Rows of the table at most."""
DETAILS = 4
"""Measured numbers of an event in the table at most."""
KINDS = (
    ("activation", "outputs"),
    ("param_grad", "gradients of parameters"),
    ("output_grad", "gradients at outputs"),
    ("param", "parameters"),
)
ORDER: dict[str, Callable[[Event], Any]] = {
    "kind": lambda e: e.kind,
    "layer": lambda e: e.layer or "",
    "first": lambda e: e.first_step,
    "last": lambda e: e.last_step,
    "sure": lambda e: e.confidence,
}
HEADS = {"kind": "what happened", "layer": "layer", "first": "from step", "last": "to step", "sure": "how sure"}


def events(scene: Scene) -> Drawing:
    """Return the table of events in the order of the address, by default earliest first."""
    found = scene.diagnosis.events
    if not found:
        return Drawing("Events", empty=f"No event was found in {scene.moment.judged:,} steps.")
    asked = scene.state.sort or "first"
    name = asked.removeprefix("-") if asked.removeprefix("-") in ORDER else "first"
    down = asked == f"-{name}"
    ordered = sorted(found, key=ORDER[name], reverse=down)
    heads = [
        html.Span(go(words + (" ▼" if down else " ▲") * (key == name), scene.link(sort=_turned(key, name, down=down))))
        for key, words in HEADS.items()
    ]
    rows = [_row(scene, event) for event in ordered[:MOST]]
    more = len(found) - MOST
    notes = (f"{more:,} more events are left out: sort otherwise to see them.",) if more > 0 else ()
    return Drawing(f"Events ({len(found):,})", table([*heads, "measured"], rows, numbers=(2, 3, 4)), notes)


def _turned(key: str, name: str, *, down: bool) -> str:
    return f"-{key}" if key == name and not down else key


def _row(scene: Scene, event: Event) -> list[Any]:
    measured = [
        f"{plain(str(key)).replace('_', ' ')} {number(value)}"
        for key, value in event.details.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    return [
        go(event.kind.replace("_", " "), scene.link(layer=event.layer, step=event.first_step)),
        layer_link(scene, event.layer, event.first_step),
        step_link(scene, event.first_step, event.layer),
        step_link(scene, event.last_step, event.layer),
        f"{round(100 * event.confidence)} %",
        ", ".join(measured[:DETAILS]),
    ]


def nonfinite(scene: Scene) -> Drawing:
    """Draw the NaN and infinite values of every layer over time."""
    kind = scene.state.kind if scene.state.kind in dict(KINDS) else "activation"
    controls = choices(scene, "of", "kind", KINDS, kind)
    view = scene.view("heatmap", kind=kind, stat="nonfinite")
    if isinstance(view, Heat) and not view.empty and not (view.values > 0).any():
        where = dict(KINDS)[kind]
        return Drawing(
            view.title, empty=f"No NaN or infinite value was read in {where}.", notes=view.notes, controls=controls
        )
    return drawn(scene, "heatmap", controls, kind=kind, stat="nonfinite")


TAB = Tab(
    "anomalies",
    "Anomalies",
    (Pane("events", "words", events, wide=True), Pane("nonfinite", "figure", nonfinite, wide=True)),
)
