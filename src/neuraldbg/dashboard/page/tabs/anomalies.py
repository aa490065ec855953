"""The tab of anomalies: alerts and events, non-finite values, dead units by index, weights, and stability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.dashboard.page.alert_table import alerts
from neuraldbg.dashboard.page.components import Order, choices, go, layer_link, step_link, table
from neuraldbg.dashboard.page.figures import curves, drawn
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab
from neuraldbg.show.format.dead_unit_words import dead_layers, indices
from neuraldbg.show.format.phrases import percent
from neuraldbg.show.format.safe_text import counted, number, plain
from neuraldbg.show.format.unit_amounts import per_cent
from neuraldbg.show.forms import Heat

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.nouns import Event

NONFINITE = "NaN and infinite values"
DEAD = "Dead units"
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
SHOWN_ON = {
    "nonfinite_loss": "diagnosis", "nonfinite": "anomalies", "gradient": "gradients", "update": "gradients",
    "unchanged": "gradients", "activation": "activations", "dead": "activations", "saturated": "activations",
}  # fmt: skip
"""Tab that draws an event, by the first of these words that is in its kind."""
ORDER: dict[str, Callable[[Event], Any]] = {
    "kind": lambda e: e.kind,
    "layer": lambda e: e.layer or "",
    "first": lambda e: e.first_step,
    "last": lambda e: e.last_step,
    "sure": lambda e: e.confidence,
}
HEADS = {"kind": "event", "layer": "layer", "first": "from step", "last": "to step", "sure": "confidence"}


def events(scene: Scene) -> Drawing:
    """Return the table of events in the order of the address, by default earliest first."""
    found = scene.diagnosis.events
    if not found:
        return Drawing("Events", empty=f"No event was found in {scene.moment.judged:,} steps.")
    order = Order.of(scene.state.sort, ORDER, "first")
    ordered = sorted(found, key=ORDER[order.column], reverse=order.down)
    heads = order.heads(scene, HEADS)
    rows = [_row(scene, event) for event in ordered[:MOST]]
    more = len(found) - MOST
    notes = (f"{more:,} more events are not listed: sort by another column to see them.",) if more > 0 else ()
    return Drawing(f"Events ({len(found):,})", table([*heads, "measured"], rows, numbers=(2, 3, 4)), notes)


def _row(scene: Scene, event: Event) -> list[Any]:
    measured = [
        f"{plain(str(key)).replace('_', ' ')} {number(value)}"
        for key, value in event.details.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    return [
        go(event.kind.replace("_", " "), scene.link(tab=_tab_of(event.kind), layer=event.layer, step=event.first_step)),
        layer_link(scene, event.layer, event.first_step),
        step_link(scene, event.first_step, event.layer),
        step_link(scene, event.last_step, event.layer),
        percent(event.confidence),
        ", ".join(measured[:DETAILS]),
    ]


def _tab_of(kind: str) -> str:
    """Return the tab that draws what an event is about."""
    return next((tab for word, tab in SHOWN_ON.items() if word in kind), "diagnosis")


def nonfinite(scene: Scene) -> Drawing:
    """Draw the NaN and infinite values of every layer over time."""
    kind = scene.state.kind if scene.state.kind in dict(KINDS) else "activation"
    controls = choices(scene, "of", "kind", KINDS, kind)
    view = scene.view("heatmap", kind=kind, stat="nonfinite")
    if isinstance(view, Heat) and not view.empty and not (view.values > 0).any():
        where = dict(KINDS)[kind]
        return Drawing(NONFINITE, empty=f"No NaN or infinite value was read in {where}.", controls=controls)
    return drawn(scene, "heatmap", controls, NONFINITE, kind=kind, stat="nonfinite")


def dead(scene: Scene) -> Drawing:
    """Return the dead units of each layer by their indices; nothing if there are none."""
    found = dead_layers(scene.run)
    if not found.layers:
        why = f"All units look dead from step {found.end:,} on: NaN is not positive." if found.end is not None else ""
        return Drawing(DEAD, empty=f"No unit of a ReLU is known to be dead. {why}".strip())
    rows = [
        [
            layer_link(scene, one.layer, found.step),
            f"{one.dead:,}",
            f"{one.units:,}",
            per_cent(one.dead, one.units),
            plain(indices(one)),
        ]
        for one in found.layers
    ]
    notes = [
        f"The same units since step {found.step:,}: positive in no row that was read over many steps, 300 at least"
    ]
    notes += [f"{counted(found.left_out, 'layer')} with fewer dead units left out"] * bool(found.left_out)
    heads = ("layer", "dead", "of", "share", "indices, from 0")
    return Drawing(DEAD, table(heads, rows, numbers=(1, 2, 3)), tuple(notes))


def weights(scene: Scene) -> Drawing:
    """Draw the size of each layer's weights beside the start."""
    return curves(scene, scene.view("weight_growth"))


def stability(scene: Scene) -> Drawing:
    """Draw loss and gradient norm beside their usual size, with what was measured in words below."""
    return curves(scene, scene.view("stability"))


TAB = Tab(
    "anomalies",
    "Anomalies",
    (
        Pane("events", "words", events, wide=True),
        Pane("alerts", "words", alerts, wide=True),
        Pane("nonfinite", "figure", nonfinite, wide=True),
        Pane("dead", "words", dead, wide=True),
        Pane("stability", "figure", stability),
        Pane("weights", "figure", weights),
    ),
)
