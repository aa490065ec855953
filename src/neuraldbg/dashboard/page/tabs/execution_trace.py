"""The tab of the execution trace: time per step, scalars, layers in the order of their calls, and the data flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.dashboard.page.components import choices, layer_link, table
from neuraldbg.dashboard.page.figures import drawn
from neuraldbg.dashboard.page.network import connected
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab
from neuraldbg.nouns import SCALARS
from neuraldbg.show.format.safe_text import number, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.nouns import Layer

MOST = 120
"""Rows of the table of layers at most."""
NODES = 24
"""Nodes of the data flow at most: of more layers, containers are shown."""
SETTINGS = 4
"""Constructor arguments of a layer that are shown at most."""


def trace(scene: Scene) -> Drawing:
    """Draw the time per step."""
    return drawn(scene, "trace")


def scalars(scene: Scene) -> Drawing:
    """Draw one of the measured scalars over time."""
    measured = [name for name in SCALARS if name in scene.run.history.scalars]
    if not measured:
        return Drawing(
            "Scalars", empty="No step was recorded yet: loss, learning rate and the like appear with the first."
        )
    chosen = scene.state.scalar if scene.state.scalar in measured else next(iter(measured))
    options = ((name, name.replace("_", " ")) for name in measured)
    return drawn(scene, "series", choices(scene, "scalar", "scalar", options, chosen), stat=chosen)


def dataflow(scene: Scene) -> Drawing:
    """Draw the data flow between layers, with their health."""
    return connected(scene, "dataflow", "Data flow and health of the layers", rows=NODES)


def layers(scene: Scene) -> Drawing:
    """Return the table of layers in the order of their first call, with numbers of parameters and outputs."""
    every = scene.run.layout.layers
    if not every:
        return Drawing(
            "Layers", empty="No layer was seen: NeuralDBG finds a model when an optimizer holds its parameters."
        )
    hit = {event.layer for event in scene.diagnosis.events}
    shown = every[:MOST] + tuple(layer for layer in every[MOST:] if layer.path in hit)[:MOST]
    sizes = _sizes(scene)
    rows = [_row(scene, layer, sizes, i) for i, layer in enumerate(shown)]
    heads = ("", "layer", "type", "made with", "parameters", "output a step", "dtype", "found")
    notes = (
        (f"{len(shown):,} of {len(every):,} layers: the first, and those with events.",)
        if len(shown) < len(every)
        else ()
    )
    return Drawing("Layers in the order of their calls", table(heads, rows, numbers=(0, 4, 5)), notes)


def _row(scene: Scene, layer: Layer, sizes: Sequence[float], at: int) -> list[Any]:
    run = scene.run
    kinds = sorted({e.kind.replace("_", " ") for e in scene.diagnosis.events if e.layer == layer.path})
    made = [f"{key}={number(v) if isinstance(v, float) else v}" for key, v in list(layer.settings.items())[:SETTINGS]]
    outputs = run.layout.rows("activation", layer.path)
    dtypes = sorted({run.layout.sites[row].dtype for row in outputs} - {""})
    never = layer.path in run.info.coverage.get("never_fired", ())
    return [
        str(at + 1) if layer.path in run.layout.called else "",
        layer_link(scene, layer.path),
        plain(layer.type),
        plain(", ".join(made)),
        _elements(sizes, run.layout.rows("param", layer.path)),
        "never called" if never else _elements(sizes, outputs),
        ", ".join(dtypes),
        ", ".join(kinds),
    ]


def _sizes(scene: Scene) -> Sequence[float]:
    """Return the number of elements of the tensor of each site at its last reading."""
    history = scene.run.history
    read = history.read.nonzero()[0]
    if not len(read):
        return ()
    sizes: list[float] = history.stat(tuple(range(history.sites)), "total", "max")[read[-1]].tolist()
    return sizes


def _elements(sizes: Sequence[float], rows: tuple[int, ...]) -> str:
    total = sum(sizes[row] for row in rows if row < len(sizes))
    return f"{int(total):,}" if total > 0 else ""


def profile(scene: Scene) -> Drawing:
    """Return the sentence that this version does not record the time of layers."""
    del scene
    return Drawing(
        "Time of each layer",
        empty="This run holds the time of steps, not of layers: that comes with profiling, which this version does not "
        "record yet.",
    )


TAB = Tab(
    "execution_trace",
    "Execution trace",
    (
        Pane("trace", "figure", trace),
        Pane("scalars", "figure", scalars),
        Pane("dataflow", "network", dataflow, wide=True),
        Pane("layers", "words", layers, wide=True),
        Pane("profile", "figure", profile, wide=True),
    ),
)
