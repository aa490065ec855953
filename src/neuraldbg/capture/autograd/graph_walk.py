"""The walk through the autograd graph of a loss: data flow between layers, and the nodes from the last layer to the
loss.

The loss tensor enters, and the marks that the forward hooks left on the nodes of the layers' outputs; the walk keeps no
node of the graph beyond its ``Walk``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.autograd.function import BackwardCFunction

from neuraldbg.nouns import Edge

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from torch import Tensor

Node = Any
"""torch.autograd.graph.Node: its saved tensors are attributes whose names differ by operation."""

LIMIT = 20_000
"""Nodes that one walk visits at most."""
RISKY = 16
"""Risky operations that are watched at most: each is read at every step."""
NOTED = frozenset(["mul", "nativedropout", "softmax", "safesoftmax"])
"""Operations, beside all kinds of fused attention, that a walk collects for readers: masks of dropout, attention."""
_NOTES = 256
"""Operations in NOTED that one walk collects at most."""
ATTENTION = "scaleddotproduct"
"""Beginning of the names of all kinds of fused attention."""
_CHECKS = 64
"""Operations of each kind that is to be checked that one walk collects at most."""
_FUNCTIONS = 16
"""Classes of custom autograd Functions that one walk collects at most."""
SHAPE_ONLY = frozenset(
    [
        "view",
        "reshape",
        "t",
        "transpose",
        "permute",
        "unsqueeze",
        "squeeze",
        "expand",
        "slice",
        "select",
        "clone",
        "alias",
        "unsafeview",
        "asstrided",
        "tocopy",
        "to",
        "split",
        "splitwithsizes",
        "chunk",
        "unbind",
        "index",
        "gather",
        "narrow",
        "contiguous",
        "copyslices",
        "copyb",
        "detach",
        "accumulategrad",
        "cat",
        "stack",
    ]
)


class Marks:
    """The layer whose output a node made, stored on the node itself.

    A dictionary of nodes would keep the graph of a pass without a backward alive (evaluation with gradients left on),
    and with it the activations.
    """

    def put(self, node: Node, layer: str) -> None:
        """Mark a node with a layer, unless an inner layer has marked it already: both returned the same tensor."""
        node.metadata.setdefault(self, layer)

    def get(self, node: Node) -> str | None:
        """Return the layer whose output the node made, None if it made none."""
        layer: str | None = node.metadata.get(self)
        return layer


def op_name(node: Node) -> str:
    """Return an operation's lower-case name: "relu" for ``ReluBackward0``."""
    name = str(node.name()).rsplit("::", 1)[-1]
    return name.rstrip("0123456789").removesuffix("Backward").lower()


def parents(node: Node) -> Iterator[tuple[Node, int]]:
    """Yield (node, output index) for each input of a node."""
    for parent, index in node.next_functions:
        if parent is not None:
            yield parent, index


@dataclass
class Walk:
    """The results of one walk through a graph."""

    edges: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """{(source layer, target layer or "loss"): operations between, nearest to the source first}."""
    loss_nodes: list[Node] = field(default_factory=list)
    """Nodes between the loss and the first layer outputs, the loss's own first."""
    risky: list[tuple[str, str, tuple[int, ...]]] = field(default_factory=list)
    """(operation, layer it feeds or "loss", path of ``next_functions`` indices) of numerically risky operations."""

    noted: list[tuple[str, str, Node]] = field(default_factory=list)
    """(operation, layer it feeds or "loss", node) of operations in NOTED, nearest to the loss first. A node that feeds
    several layers has an entry for each."""

    checked: dict[str, dict[Node, str]] = field(default_factory=dict)
    """{operation that is to be checked: {node: a layer it feeds, or "loss"}}, nearest to the loss first."""

    leaves: dict[int, tuple[Tensor, set[str]]] = field(default_factory=dict)
    """The leaves of the graph, by identity: (tensor, layers or "loss" that it feeds)."""
    functions: dict[type, str] = field(default_factory=dict)
    """{class of a custom autograd Function: layer or "loss" that one of its nodes feeds}."""

    feeding: dict[str, set[str]] = field(default_factory=dict)
    """{layer: every operation between the layers before it and its output, those of fused kernels included}."""

    def as_edges(self) -> tuple[Edge, ...]:
        """Return the edges as ``Edge`` values."""
        return tuple(Edge(source, target, ops) for (source, target), ops in self.edges.items())


def walk(root: Node, layers: Marks, risky: frozenset[str], checked: Collection[str] = ()) -> Walk:
    """Walk the graph from the loss, breadth first. ``layers`` maps the node of a layer's output to the layer; ``risky``
    and ``checked`` are names of operations to collect, ``ATTENTION`` for all kinds of fused attention.
    """
    found = Walk()
    # Each entry: node, the layer (or loss) that consumes its output, operations so far, index in ``trail``.
    queue: list[tuple[Node, str, tuple[str, ...], int]] = [(root, "loss", (), -1)]
    trail: list[tuple[int, int]] = []  # (trail entry of the consumer, index among its next_functions)
    seen: set[tuple[Node, str]] = set()
    for node, consumer, since, at in _drain(queue):
        target, ops = consumer, since
        if len(queue) > LIMIT:
            break
        # At a layer's output begins the next edge; operations from here on belong to that layer.
        source = layers.get(node)
        if source is not None and source != target:
            found.edges.setdefault((source, target), ops)
            target, ops = source, ()
        if (node, target) in seen:
            continue
        seen.add((node, target))
        # A leaf ends the path. Its variable is kept, not its node.
        name = op_name(node)
        if name == "accumulategrad":
            found.leaves.setdefault(id(node.variable), (node.variable, set()))[1].add(target)
            continue
        # Collected while the graph lives: custom Functions, risky operations, dropout and attention.
        if isinstance(node, BackwardCFunction) and len(found.functions) < _FUNCTIONS:
            # the metaclass of Function leaves its class there
            found.functions.setdefault(getattr(type(node), "_forward_cls", type(node)), target)
        found.feeding.setdefault(target, set()).add(name)
        if name in risky and len(found.risky) < RISKY:
            found.risky.append((name, target, _path(trail, at)))
        fused = name.startswith(ATTENTION)
        if (name in NOTED or fused) and len(found.noted) < _NOTES:
            found.noted.append((name, target, node))
        kind = ATTENTION if fused else name
        if kind in checked and len(nodes := found.checked.setdefault(kind, {})) < _CHECKS:
            nodes.setdefault(node, target)
        # The path of operations is cut at eight; operations that only change the shape say nothing about an edge.
        if target == "loss":
            found.loss_nodes.append(node)
        if source is None and name not in SHAPE_ONLY:
            ops = (name, *ops)[:8]
        for place, (parent, _) in enumerate(node.next_functions):
            if parent is not None:
                trail.append((at, place))
                queue.append((parent, target, ops, len(trail) - 1))
    return found


def _path(trail: list[tuple[int, int]], at: int) -> tuple[int, ...]:
    places = []
    while at >= 0:
        at, place = trail[at]
        places.append(place)
    return tuple(reversed(places))


def _drain(queue: list[Any]) -> Iterator[Any]:
    at = 0
    while at < len(queue):
        entry, queue[at] = queue[at], None  # the queue must not keep a node alive
        yield entry
        at += 1


def follow(root: Node, path: tuple[int, ...]) -> Node | None:
    """Return the node at a path of indices, None if the graph has another shape now."""
    node = root
    for index in path:
        places = node.next_functions
        if index >= len(places) or places[index][0] is None:
            return None
        node = places[index][0]
    return node
