"""The tab of the execution trace: one step as a timeline, time per layer and per step, scalars, layers, data flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dash import html

from neuraldbg.dashboard.page.components import choices, layer_link, table
from neuraldbg.dashboard.page.figures import ROWS, curves, drawn
from neuraldbg.dashboard.page.network import connected
from neuraldbg.dashboard.page.suggestions import of_time
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab
from neuraldbg.nouns import METRIC, SCALARS, column, metric_names
from neuraldbg.nouns.facts.footprint import FootprintFact
from neuraldbg.show.format.safe_text import number, plain
from neuraldbg.show.format.unit_amounts import amount
from neuraldbg.show.views.series import scalar_title
from neuraldbg.show.views.timed import share, timing_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.dashboard.page.context import Scene
    from neuraldbg.nouns import Layer, RunRecord
    from neuraldbg.nouns.facts.footprint import LayerFootprint
    from neuraldbg.nouns.facts.timing import LayerTiming

NOTHING = Drawing("", empty="No step was timed.")
"""Drawing of a pane that is not shown, since it has no title: the timeline gives the reason."""
MOST = 120
"""Rows of the table of layers at most."""
NODES = 24
"""Nodes of the data flow at most: of more layers, containers are shown."""
SETTINGS = 4
"""Constructor arguments of a layer that are shown at most."""


def timeline(scene: Scene) -> Drawing:
    """Draw one step as a timeline of its layers."""
    return drawn(scene, "timeline", layer=scene.state.layer, rows=ROWS)


def profile(scene: Scene) -> Drawing:
    """Draw the time of each layer; nothing if none was timed, as the timeline says."""
    return drawn(scene, "profile", layer=scene.state.layer, rows=ROWS) if timing_of(scene.run) else NOTHING


def phases(scene: Scene) -> Drawing:
    """Draw the parts of a step by time; nothing if none was timed."""
    return drawn(scene, "phases") if timing_of(scene.run) else NOTHING


def trace(scene: Scene) -> Drawing:
    """Draw the time per step."""
    return drawn(scene, "trace")


def scalars(scene: Scene) -> Drawing:
    """Draw one of the measured scalars over time."""
    measured = [name for name in SCALARS if name in scene.run.history.scalars]
    measured += [f"{METRIC}{name}" for name in metric_names(scene.run.history.scalars)]
    if not measured:
        return Drawing("Scalars", empty="No step was recorded yet.")
    chosen = scene.state.scalar if scene.state.scalar in measured else next(iter(measured))
    options = ((name, plain(name) if name.startswith(METRIC) else scalar_title(name).lower()) for name in measured)
    controls = [choices(scene, "scalar", "scalar", options, chosen)]
    return curves(scene, scene.view("series", stat=chosen), (chosen,), controls)


def dataflow(scene: Scene) -> Drawing:
    """Draw the data flow between layers, with their health."""
    return connected(scene, "dataflow", "Data flow and health of the layers", rows=NODES)


def layers(scene: Scene) -> Drawing:
    """Return the table of layers in the order of their first call, with numbers of parameters and outputs."""
    every = scene.run.layout.layers
    if not every:
        return Drawing(
            "Layers", empty="No layer was called yet: a model is found when an optimizer holds its parameters."
        )
    hit = {event.layer for event in scene.diagnosis.events}
    shown = every[:MOST] + tuple(layer for layer in every[MOST:] if layer.path in hit)[:MOST]
    sizes, costs = _sizes(scene), Costs(scene.run)
    rows = [_row(scene, layer, sizes, i, costs) for i, layer in enumerate(shown)]
    heads = ("", "layer", "type", "arguments", "parameters", *costs.outputs, *costs.heads, "events")
    notes = (
        (f"{len(shown):,} of {len(every):,} layers: the first, and those with events.",)
        if len(shown) < len(every)
        else ()
    )
    begin = len(heads) - 1 - len(costs.heads)
    numbers = (0, 4, *(() if costs.timed else (5,)), *range(begin, len(heads) - 1))
    return Drawing("Layers in the order of their calls", table(heads, rows, numbers), notes)


class Costs:
    """The measured costs of each layer as cells of the table: shapes, time, operations and memory."""

    def __init__(self, run: RunRecord) -> None:
        timing, footprint = timing_of(run), run.known(FootprintFact)
        self._timing = timing
        self._timed = {one.layer: one for one in timing.layers} if timing is not None else {}
        self._held = {one.layer: one for one in footprint.layers} if footprint is not None else {}
        self.timed = bool(self._timed)
        self.outputs = ("shapes",) if self.timed else ("output elements in a step", "dtype")
        """Titles of the columns on what enters and leaves a layer."""
        self.heads = (
            *(("calls", "forward", "backward", "share", "FLOP") if self._timed else ()),
            *(("memory", "peak") if self._held else ()),
        )
        """Titles of the columns of numbers; none if nothing was measured."""

    def shapes(self, path: str) -> list[Any]:
        """Return what enters and what leaves a layer, each on lines of its own; nothing if it was not timed."""
        one = self._timed.get(path)
        if one is None:
            return []
        sides = [(sign, ", ".join(given)) for sign, given in (("", one.inputs), ("→ ", one.outputs)) if given]
        return [html.Div(plain(f"{sign}{words}"), className="shapes") for sign, words in sides]

    def of(self, path: str) -> list[str]:
        """Return the cells of a layer, "" for what was not measured of it."""
        cells: list[str] = []
        if self._timed:
            cells += self._time(self._timed[path]) if path in self._timed else [""] * 5
        if self._held:
            cells += self._memory(self._held[path]) if path in self._held else [""] * 2
        return cells

    def _time(self, one: LayerTiming) -> list[str]:
        own = one.own_forward_s + (one.own_backward_s or 0.0)
        spent = (amount(one.own_forward_s, "s"), amount(one.own_backward_s, "s"), share(self._timing, own))
        return [f"{one.calls:,}", *spent, amount(one.flops, "FLOP")]

    def _memory(self, one: LayerFootprint) -> list[str]:
        held = one.parameters + one.gradients + one.optimizer + (one.activations or 0)
        peaks = [peak for peak in (one.peak, one.backward_peak) if peak is not None]
        return [amount(held, "B"), amount(max(peaks), "B") if peaks else ""]


def _row(scene: Scene, layer: Layer, sizes: Sequence[float], at: int, costs: Costs) -> list[Any]:
    run = scene.run
    kinds = sorted({e.kind.replace("_", " ") for e in scene.diagnosis.events if e.layer == layer.path})
    made = [f"{key}={number(v) if isinstance(v, float) else v}" for key, v in list(layer.settings.items())[:SETTINGS]]
    outputs = run.layout.rows("activation", layer.path)
    dtypes = sorted({run.layout.sites[row].dtype for row in outputs} - {""})
    coverage = run.info.coverage
    unread = dict.fromkeys(coverage.get("without_grad", ()), "only without gradients")
    unread |= dict.fromkeys(coverage.get("never_fired", ()), "never called")
    made_of: list[Any] = [unread.get(layer.path) or _elements(sizes, outputs), ", ".join(dtypes)]
    if costs.timed:
        read = f"{made_of[0]} elements, {made_of[1]}" if layer.path not in unread and made_of[0] else made_of[0]
        made_of = [costs.shapes(layer.path) or read]
    return [
        str(at + 1) if layer.path in run.layout.called else "",
        layer_link(scene, layer.path),
        plain(layer.type),
        plain(", ".join(made)),
        _elements(sizes, run.layout.rows("param", layer.path)),
        *made_of,
        *costs.of(layer.path),
        ", ".join(kinds),
    ]


def _sizes(scene: Scene) -> Sequence[float]:
    """Return the number of elements of the tensor of each site at its last reading."""
    history = scene.run.history
    sizes = np.zeros(history.sites)
    # With several optimizers no row of time has all sites: each row backwards fills in those that none after it has.
    for at in history.read.nonzero()[0][::-1].tolist():
        row = history.row(at, "max")
        new = (sizes == 0) & (row[:, column("count")] > 0)
        sizes[new] = row[new, column("total")]
        if sizes.all():
            break
    found: list[float] = sizes.tolist()
    return found


def _elements(sizes: Sequence[float], rows: tuple[int, ...]) -> str:
    total = sum(sizes[row] for row in rows if row < len(sizes))
    return f"{int(total):,}" if total > 0 else ""


TAB = Tab(
    "execution_trace",
    "Execution trace",
    (
        Pane("timeline", "figure", timeline, wide=True),
        Pane("suggestions", "words", of_time, wide=True),
        Pane("profile", "figure", profile),
        Pane("phases", "figure", phases),
        Pane("trace", "figure", trace),
        Pane("scalars", "figure", scalars),
        Pane("dataflow", "network", dataflow),
        Pane("layers", "words", layers, wide=True),
    ),
)
