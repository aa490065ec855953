"""The layout: the layers of the watched models, the sites read in them, and the data flow between layers."""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping  # noqa: TC003 (dataclass annotations are read at run time)
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.nouns.site import Site


RECTIFIERS = frozenset({"ReLU", "ReLU6", "Threshold"})
BOUNDED = frozenset({"Sigmoid", "Tanh", "Hardsigmoid", "Hardtanh", "Softsign"})
BOUNDED_OPS = frozenset({"sigmoid", "tanh"})
"""Functional bounded activations, read at their input, beyond which the output is within 1% of a bound."""
RECTIFYING_OPS = frozenset({"relu", "relu_", "relu6", "threshold", "clamp_min"})


NUMBERED = re.compile(r"\d+(\.\d+)*")
"""Path of a layer without a name of its own, as in a Sequential."""


def called(path: str) -> str:
    """Format a layer's path for a sentence: ``encoder.fc1``, but ``layer 3`` for a number."""
    return f"layer {path}" if NUMBERED.fullmatch(path) else path


@dataclass(frozen=True, slots=True)
class Layer:
    """A module of a watched model, with its type, parameters and settings."""

    path: str
    """Path as in ``Site.module``. With several models, those after the first have their variable's name as a prefix."""
    type: str
    """Class name, such as ``Linear``."""
    model: str
    """Name of the model: the class of the root module, or the variable that holds it."""
    leaf: bool
    """True if the module has no child modules."""
    params: tuple[str, ...] = ()
    """Names of the module's own parameters: ``weight`` and ``bias``."""
    settings: Mapping[str, float | str | bool] = field(default_factory=dict)
    """Constructor arguments that explain behaviour: in_features, out_features, p, momentum, eps, ..."""


@dataclass(frozen=True, slots=True)
class Edge:
    """The data flow from one layer's output into another's input, read from the autograd graph."""

    source: str
    """Path of the layer whose output it is."""
    target: str
    """Path of the layer that takes it, or "loss"."""
    ops: tuple[str, ...] = ()
    """Functional operations in between, nearest to the source first: ("relu", "add")."""


@dataclass(frozen=True)
class Layout:
    """A snapshot of layers, sites and edges. Later layouts only have more, and a site keeps its row."""

    layers: tuple[Layer, ...] = ()
    """Layers in order of first call; those never called come last, in the order of ``named_modules()``."""
    sites: tuple[Site, ...] = ()
    """Sites; row i of every table is ``sites[i]``."""
    edges: tuple[Edge, ...] = ()
    """Data flow between layers."""
    called: frozenset[str] = frozenset()
    """Paths of the layers that were called."""

    @cached_property
    def by_path(self) -> dict[str, Layer]:
        """Layers by path."""
        return {layer.path: layer for layer in self.layers}

    @cached_property
    def position(self) -> dict[str, int]:
        """Position of each layer in ``layers``, by path."""
        return {layer.path: at for at, layer in enumerate(self.layers)}

    @cached_property
    def positions_of_type(self) -> dict[str, list[int]]:
        """Positions in ``layers`` of the layers of each type, in ascending order: {"linear": [0, 3]}."""
        found: dict[str, list[int]] = {}
        for at, layer in enumerate(self.layers):
            found.setdefault(layer.type.lower(), []).append(at)
        return found

    @cached_property
    def depth(self) -> dict[str, int]:
        """Position of each layer in data-flow order: every source comes before its targets.

        The order is that of the edges of the autograd graph; ties, and layers without edges, keep the order of their
        first call.
        """
        # Kahn's algorithm, with the order of first call as the priority.
        position = self.position
        incoming: dict[str, set[str]] = {path: set() for path in position}
        outgoing: dict[str, set[str]] = {path: set() for path in position}
        for edge in self.edges:
            if edge.source in position and edge.target in position and edge.source != edge.target:
                incoming[edge.target].add(edge.source)
                outgoing[edge.source].add(edge.target)
        order: dict[str, int] = {}
        earliest = iter(sorted(position, key=position.__getitem__))
        free = [(at, path) for path, at in position.items() if not incoming[path]]
        heapq.heapify(free)
        while len(order) < len(position):
            # A recurrent model has cycles: when no layer is free, the earliest called one is next.
            path = heapq.heappop(free)[1] if free else next(path for path in earliest if path not in order)
            if path in order:
                continue
            order[path] = len(order)
            for target in outgoing[path]:
                incoming[target].discard(path)
                if not incoming[target] and target not in order:
                    heapq.heappush(free, (position[target], target))
        return order

    @cached_property
    def following_ops(self) -> dict[str, frozenset[str]]:
        """Functional operations that each layer's output goes into first: {"fc1": {"relu"}}."""
        found: dict[str, set[str]] = {}
        for edge in self.edges:
            if edge.ops:
                found.setdefault(edge.source, set()).add(edge.ops[0])
        return {path: frozenset(ops) for path, ops in found.items()}

    @cached_property
    def rectified(self) -> frozenset[str]:
        """Paths of the layers whose output is rectified, by themselves or by the operation that it goes into first. In
        other layers a unit that is positive for no sample is not dead.
        """
        own = {layer.path for layer in self.layers if layer.type in RECTIFIERS}
        return frozenset(own | {path for path, ops in self.following_ops.items() if ops & RECTIFYING_OPS})

    @cached_property
    def bounded(self) -> frozenset[str]:
        """Paths of the layers whose output is bounded on both sides, by themselves or by the operation that it goes
        into first.
        """
        own = {layer.path for layer in self.layers if layer.type in BOUNDED}
        return frozenset(own | {path for path, ops in self.following_ops.items() if ops & BOUNDED_OPS})

    def rows(self, kind: str, module: str | None = None, name: str | None = None) -> tuple[int, ...]:
        """Return the rows of the sites of a kind, optionally of one layer (by path) and of one parameter or leaf name.

        >>> [run.layout.sites[row].label for row in run.layout.rows("param_grad", "0")]
        ['0.weight', '0.bias']
        """
        rows = self._by_kind.get(kind, ()) if module is None else self._by_layer.get((kind, module), ())
        return rows if name is None else tuple(row for row in rows if self.sites[row].name == name)

    @cached_property
    def _by_kind(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, list[int]] = {}
        for row, site in enumerate(self.sites):
            found.setdefault(site.kind, []).append(row)
        return {kind: tuple(rows) for kind, rows in found.items()}

    @cached_property
    def _by_layer(self) -> dict[tuple[str, str], tuple[int, ...]]:
        found: dict[tuple[str, str], list[int]] = {}
        for row, site in enumerate(self.sites):
            found.setdefault((site.kind, site.module), []).append(row)
        return {key: tuple(rows) for key, rows in found.items()}
