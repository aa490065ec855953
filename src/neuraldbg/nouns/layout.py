"""What is where: the layers of the watched models, the sites read in them, and how data flows between them."""

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
"""Functional ones, measured at the input beyond which the output is within 1% of a bound."""
RECTIFYING_OPS = frozenset({"relu", "relu_", "relu6", "threshold", "clamp_min"})


NUMBERED = re.compile(r"\d+(\.\d+)*")
"""The path of a layer that nobody named, as in a Sequential."""


def called(path: str) -> str:
    """Write a layer's path for a sentence: ``encoder.fc1``; ``layer 3`` where it is a number."""
    return f"layer {path}" if NUMBERED.fullmatch(path) else path


@dataclass(frozen=True, slots=True)
class Layer:
    """A module of a watched model."""

    path: str
    """As in Site.module. With several models, those after the first carry their variable's name as a prefix."""
    type: str
    """Class name, such as ``Linear``."""
    model: str
    """The name of the model it belongs to: the class of the root module, or the variable that holds it."""
    leaf: bool
    """Whether it has no child modules."""
    params: tuple[str, ...] = ()
    """Names of the parameters it owns itself, ``weight`` and ``bias``."""
    settings: Mapping[str, float | str | bool] = field(default_factory=dict)
    """Numbers of its construction that explain behaviour: in_features, out_features, p, momentum, eps, ..."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Data flows from one layer's output into another's input, read from the autograd graph."""

    source: str
    target: str
    """A layer path, or "loss"."""
    ops: tuple[str, ...] = ()
    """Functional operations on the way, nearest to the source first: ("relu", "add")."""


@dataclass(frozen=True)
class Layout:
    """A snapshot: it only ever grows, and a site keeps its row."""

    layers: tuple[Layer, ...] = ()
    """In order of first call; layers never called come last, in ``named_modules()`` order."""
    sites: tuple[Site, ...] = ()
    """Row i of every table is sites[i]."""
    edges: tuple[Edge, ...] = ()
    called: frozenset[str] = frozenset()
    """Paths of the layers whose forward hook has fired."""

    @cached_property
    def by_path(self) -> dict[str, Layer]:
        """Layers by path."""
        return {layer.path: layer for layer in self.layers}

    @cached_property
    def depth(self) -> dict[str, int]:
        """Position of each layer in data-flow order: every source comes before its targets.

        Layers are laid out by the edges of the autograd graph; ties, and layers without edges, keep the order of
        their first call.
        """
        position = {layer.path: i for i, layer in enumerate(self.layers)}
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
            # A recurrent model has cycles: take the earliest called layer when none is free.
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
        """For each layer, the functional operation its output goes into first: {"fc1": {"relu"}}."""
        found: dict[str, set[str]] = {}
        for edge in self.edges:
            if edge.ops:
                found.setdefault(edge.source, set()).add(edge.ops[0])
        return {path: frozenset(ops) for path, ops in found.items()}

    @cached_property
    def rectified(self) -> frozenset[str]:
        """Layers whose output is rectified, by themselves or by the operation that it goes into first: a unit of
        another layer that is positive for no sample is not dead.
        """
        own = {layer.path for layer in self.layers if layer.type in RECTIFIERS}
        return frozenset(own | {path for path, ops in self.following_ops.items() if ops & RECTIFYING_OPS})

    @cached_property
    def bounded(self) -> frozenset[str]:
        """Layers whose output is bounded on both sides, by themselves or by the operation that it goes into first."""
        own = {layer.path for layer in self.layers if layer.type in BOUNDED}
        return frozenset(own | {path for path, ops in self.following_ops.items() if ops & BOUNDED_OPS})

    def rows(self, kind: str, module: str | None = None, name: str | None = None) -> tuple[int, ...]:
        """Rows of the sites of a kind, optionally of one layer and parameter or leaf name."""
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
