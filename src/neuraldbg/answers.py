"""The answers about layers, gradients and coupled events, as plain values over a RunRecord, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.arguments import whole
from neuraldbg.errors import UnknownStep
from neuraldbg.layer_alias import alias, resolve
from neuraldbg.nouns import STATS, Event, RunRecord, Series, Site, Step, column, jsonable
from neuraldbg.nouns.diagnosis import layer_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.nouns import Layout


class Norms(Mapping[str, float]):
    """The L2 norms by layer over one kind of sites, computed when they are first read."""

    def __init__(self, table: npt.NDArray[np.float64], layout: Layout, kind: str) -> None:
        self._table, self._layout, self._kind = table, layout, kind
        self._values: dict[str, float] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the step's table, which this object keeps alive."""
        return self._table.nbytes

    def _computed(self) -> dict[str, float]:
        if self._values is None:
            squares: dict[str, float] = {}
            for row in self._layout.rows(self._kind):
                if row < len(self._table) and self._table[row, column("count")] > 0:
                    layer = self._layout.sites[row].module
                    squares[layer] = squares.get(layer, 0.0) + _norm(self._table[row]) ** 2
            self._values = {layer: float(np.sqrt(square)) for layer, square in squares.items()}
        return self._values

    def __getitem__(self, layer: str) -> float:
        return self._computed()[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self._computed())

    def __len__(self) -> int:
        return len(self._computed())

    def __repr__(self) -> str:
        return repr(self._computed())


def norms(step: Step, layout: Layout, kind: str) -> Norms:
    """Return the layers' L2 norms of a step for one kind of sites: ``param_grad``, ``activation``, ...; NaN if a value
    is not finite.
    """
    return Norms(step.table, layout, kind)


def _norm(row: npt.NDArray[np.floating[Any]]) -> float:
    """Return the L2 norm of a site from its statistics; NaN if a value is not finite."""
    if row[column("nonfinite")] > 0:
        return float("nan")
    return float(row[column("rms")] * np.sqrt(row[column("total")]))


SHOWN = ("norm", "mean", "rms", "min", "max")
"""Statistics of a site in the text of a `LayerState`."""


@dataclass(frozen=True, repr=False)
class LayerState:
    """The statistics, events and tensors of a layer at one step."""

    layer: str
    """Path of the layer."""
    type: str
    """Class name of the layer."""
    step: int
    """Step at which the layer was read."""
    statistics: Mapping[str, Mapping[str, float]]
    """Numbers by site, ``activation``, ``output_grad``, ``param_grad/weight``, ..., and by statistic.

    The statistics are ``norm`` (L2), ``mean``, ``std``, ``rms``, ``min`` and ``max`` of the finite values, and counts:
    ``total`` elements, ``count`` of them read, ``nonfinite``, ``zeros``, ``units``, ``dead``, ``saturated``, ``under``
    and ``over`` (values that half precision rounds to zero or to infinity).
    """
    events: tuple[Event, ...] = ()
    """Events of this layer that had begun by then."""
    unread: int = 0
    """Number of steps from ``step`` to the requested one, in which the layer was not read."""
    input: Any = field(default=None, repr=False)
    """Input tensor. None without snapshots of the layer (``NeuralDbg(model, snapshots=[...])``)."""
    output: Any = field(default=None, repr=False)
    """Output tensor. None without snapshots of the layer."""
    gradient: Any = field(default=None, repr=False)
    """Gradient of the output. None without snapshots of the layer."""

    def __str__(self) -> str:
        """Return a line for the layer, and one for each site and event."""
        late = f", the last step read ({self.unread} before the one asked for)" if self.unread else ""
        lines = [
            f"{layer_words(self.layer, '') if self.layer else 'the model'} ({self.type}) at step {self.step}{late}"
        ]
        for site, values in self.statistics.items():
            told = ", ".join(f"{name} {values[name]:.4g}" for name in SHOWN if name in values)
            bad = f", {values['nonfinite']:.0f} not finite" if values.get("nonfinite") else ""
            lines.append(f"    {site}: {told}{bad}")
        if not self.statistics:
            lines.append("    nothing of it was read")
        kept = [name for name in ("input", "output", "gradient") if getattr(self, name) is not None]
        lines += [f"    tensors: {', '.join(kept)}"] if kept else []
        return "\n".join([*lines, *(f"    event: {event}" for event in self.events)])

    def __repr__(self) -> str:
        sites = ", ".join(self.statistics) or "nothing read"
        events = f"; events: {', '.join(dict.fromkeys(event.kind for event in self.events))}" if self.events else ""
        return f"<LayerState: {self.layer or 'the model'} ({self.type}), step {self.step}; {sites}{events}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the state as strict JSON values, without the tensors.

        >>> dbg.inspect("linear1", step=3).to_dict()["step"]
        3
        """
        body = {"layer": self.layer, "type": self.type, "step": self.step, "statistics": self.statistics}
        if self.unread:
            body["unread"] = self.unread
        return {**body, "events": jsonable(self.events)}


@dataclass(frozen=True)
class GradientHealth:
    """The state of every layer's gradients at the newest step at which they were read."""

    step: int
    """Newest step whose sites were read; -1 if there is none."""
    layers: Mapping[str, str]
    """``healthy``, ``vanishing``, ``zero``, ``exploding``, ``spike``, ``nonfinite`` or ``no gradient``, by layer."""
    norms: Mapping[str, float]
    """L2 norm of the gradient by layer; NaN if there is none."""
    events: tuple[Event, ...] = field(default=())
    """Events about gradients that still last."""
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Names by type and order of the layers whose path is a number."""

    @property
    def healthy(self) -> bool:
        """True if every layer is healthy or without gradient, and no event lasts: one of a light step has no layer."""
        return not self.events and all(state in ("healthy", "no gradient") for state in self.layers.values())

    def __str__(self) -> str:
        if self.step < 0:
            return "gradients: nothing has been read yet"
        bad = [
            f"{layer_words(layer, self.aliases.get(layer, ''))} {state}"
            for layer, state in self.layers.items()
            if state not in ("healthy", "no gradient")
        ]
        more = f" and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
        unplaced = sorted({_STATES[event.kind] for event in self.events}) if not bad else []
        told = ", ".join(bad[:LISTED] or unplaced) + more
        return f"gradients at step {self.step}: " + (told or f"healthy in {len(self.layers)} layers")


RECENT = 2
"""Steps since the last observation of an event in which it still counts as lasting."""
_LIGHT = ("gradient_spike", "nonfinite_gradient", "nonfinite_loss", "loss_spike", "loss_divergence", "loss_plateau")
"""Kinds of events that are judged in light steps, too."""
_STATES = {
    "gradient_spike": "spike",
    "vanishing_gradients": "vanishing",
    "exploding_gradients": "exploding",
    "nonfinite_gradient": "nonfinite",
}
"""State of a layer by kind of event; of several the last one counts."""
VANISHING = ("vanishing_gradients",)
"""Kinds of events of gradients that vanish."""
EXPLODING = ("exploding_gradients", "nonfinite_gradient")
"""Kinds of events of gradients that explode."""
LISTED = 4
"""Largest number of layers in a sentence."""


def inspect(run: RunRecord, name: str, step: int | None = None, hint: str = "") -> LayerState:
    """Return a layer's state at a step, by default the newest. If that is a light step, it is the state of the last
    full step before it.

    Raises UnknownLayer, and UnknownStep for one that is not recorded; ``hint`` is then added to its message.
    """
    path = resolve(run.layout, name)
    if not len(run.history):
        message = "no step has been recorded yet"
        raise UnknownStep(message)
    asked = len(run.history) - 1 if step is None else _row_of(run, step, hint)
    at = _read_at(run, asked)
    table = run.history.row(at)
    statistics: dict[str, dict[str, float]] = {}
    for site, values in zip(run.layout.sites, table, strict=False):
        if site.module == path and values[column("count")] > 0:
            numbers = {stat: float(values[column(stat)]) for stat in STATS}
            statistics[_site_name(site)] = {**numbers, "norm": _norm(values)}
    first = int(run.history.steps[at])
    events = tuple(e for e in run.events if e.layer == path and e.first_step <= first)
    unread = max(0, int(run.history.steps[asked]) - int(first + run.history.width[at] - 1))
    return LayerState(path, run.layout.by_path[path].type, first, statistics, events, unread)


def _row_of(run: RunRecord, step: int, hint: str) -> int:
    step = whole(step, "step")
    steps, width = run.history.steps, run.history.width
    hit = np.flatnonzero((steps <= step) & (step < steps + width))
    if not len(hit):
        known = f"{int(steps[0])} to {int(steps[-1] + width[-1] - 1)}"
        message = f"step {step} is not recorded: steps {known} are{hint}"
        raise UnknownStep(message)
    return int(hit[-1])


def _read_at(run: RunRecord, row: int) -> int:
    """Return the last row up to ``row`` in which sites were read; ``row`` if there is none."""
    read = np.flatnonzero(run.history.read[: row + 1])
    return int(read[-1]) if len(read) else row


def _site_name(site: Site) -> str:
    name = f"{site.kind}/{site.name}" if site.name else site.kind
    return f"{name}[{site.call}]" if site.call else name


def gradient_history(run: RunRecord, name: str) -> Series:
    """Return the L2 norm over steps of the gradients of a layer's parameters, or at its output if it has none. Raises
    UnknownLayer.
    """
    path = resolve(run.layout, name)
    rows = list(run.layout.rows("param_grad", path)) or list(run.layout.rows("output_grad", path))
    history = run.history
    if not rows or not len(history):
        return Series(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
    count = history.stat(rows, "count", "max")
    square = history.stat(rows, "rms") ** 2 * history.stat(rows, "total")
    square[history.stat(rows, "nonfinite") > 0] = np.nan
    square[count == 0] = 0.0
    seen = (count > 0).any(axis=1)
    return Series(history.steps[seen], np.sqrt(square.sum(axis=1))[seen], history.width[seen])


def newest(run: RunRecord) -> tuple[int, int]:
    """Return the newest step and the newest step whose sites were read; -1 if there is none."""
    history = run.history
    if not len(history):
        return -1, -1
    end = history.steps + history.width - 1
    return int(end[-1]), int(end[_read_at(run, len(history) - 1)])


def gradient_health(run: RunRecord) -> GradientHealth:
    """Return the state of the gradients of every layer with parameters, by the events that still last."""
    last, read = newest(run)
    layers: dict[str, str] = {}
    norms_now: dict[str, float] = {}
    for layer in run.layout.layers:
        if not layer.params:
            continue
        series = gradient_history(run, layer.path)
        norms_now[layer.path] = float(series.values[-1]) if len(series) else float("nan")
        layers[layer.path] = "healthy" if len(series) else "no gradient"
    current = lasting(run.events, last, read, *_STATES)
    module = {f"{site.kind}/{site.label}": site.module for site in run.layout.sites}
    # The lists of affected sites are bounded: what is not finite now belongs to the event that lasts, too.
    spread = [path for path, norm in norms_now.items() if np.isnan(norm) and layers[path] != "no gradient"]
    for kind, state in _STATES.items():
        for event in (e for e in current if e.kind == kind):
            told = [module.get(site, site) for site in event.details.get("affected", ())]
            for path in [event.layer, *told, *(spread if kind == "nonfinite_gradient" else ())]:
                if path in layers:
                    layers[path] = "zero" if kind in VANISHING and norms_now[path] == 0 else state
    aliases = {path: name for path in layers if (name := alias(run.layout, path))}
    return GradientHealth(read, layers, norms_now, current, aliases)


def lasting(events: Iterable[Event], newest: int, read: int, *kinds: str) -> tuple[Event, ...]:
    """Return the events of some kinds that still last at the newest step, or, for kinds that are not judged in light
    steps, at ``read``, the last full step.
    """
    return tuple(
        event
        for event in events
        if event.kind in kinds and event.last_step > (newest if event.kind in _LIGHT else min(newest, read)) - RECENT
    )


@dataclass(frozen=True)
class Coupling:
    """A pair of events that begin at about the same time, in one layer or along the data flow."""

    first: Event
    """Event that begins first."""
    second: Event
    """Event that begins with it, or up to five steps later."""
    lag: int
    """Number of steps from the first step of ``first`` to that of ``second``."""
    why: str
    """``same layer``, ``data flow`` or ``same step``."""


ONE_RISE = {"loss_spike", "loss_divergence"}
"""Kinds of events that are one rise of the loss if they begin in one step."""


def coupled(events: tuple[Event, ...], layout: Layout, within: int = 5) -> list[Coupling]:
    """Return pairs of events of different kinds whose first steps are at most ``within`` steps apart."""
    linked = {(edge.source, edge.target) for edge in layout.edges}
    found = []
    ordered = sorted(events, key=lambda e: e.first_step)
    for i, first in enumerate(ordered):
        for second in ordered[i + 1 :]:
            lag = second.first_step - first.first_step
            if lag > within:
                break
            if first.kind == second.kind or (lag == 0 and {first.kind, second.kind} == ONE_RISE):
                continue
            pair = (first.layer or "", second.layer or "")
            if first.layer == second.layer and first.layer is not None:
                found.append(Coupling(first, second, lag, "same layer"))
            elif pair in linked or pair[::-1] in linked:
                found.append(Coupling(first, second, lag, "data flow"))
            elif lag == 0:
                found.append(Coupling(first, second, lag, "same step"))
    return found
