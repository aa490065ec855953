"""The model as data flows through it, with the health of each layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns import Edge
from neuraldbg.show.forms import Graph, Link, Node
from neuraldbg.show.views.moments import guilty_of
from neuraldbg.show.views.picking import touched
from neuraldbg.show.views.places import places
from neuraldbg.show.views.untrained import without_gradient
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns import Diagnosis, RunRecord

LOSS = "loss"
WORST = ("guilty", "bad", "untrained", "healthy", "unseen")
"""States of a layer, the worst first; a group of layers has its worst state."""


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Graph:
    """Return the layers and the edges read from the autograd graph; too many layers are grouped into nodes."""
    module = _guilty_module(run, diagnosis)
    found = _findings(run, diagnosis, module)
    health = found.health
    within = _groups(list(health), choice.rows - 1)
    names = list(dict.fromkeys(within[path] for path in health))
    loss = LOSS if LOSS not in names else f"({LOSS})"
    order = {path: i for i, path in enumerate(health)}
    links: dict[tuple[str, str], tuple[str, ...]] = {}
    for edge in _edges(run, module):
        # An edge into a layer that is called "loss" comes from before it; what comes after leads to the loss itself.
        to_loss = edge.target == LOSS and order.get(edge.source, 0) >= order.get(LOSS, 0)
        source, target = within.get(edge.source), loss if to_loss else within.get(edge.target)
        if source is not None and target is not None and source != target:
            links.setdefault((source, target), edge.ops)
    names += [loss] if any(target == loss for _, target in links) else []
    at = places(names, links)
    members: dict[str, list[str]] = {}
    for path, name in within.items():
        members.setdefault(name, []).append(path)
    nodes = tuple(_node(run, diagnosis, name, members.get(name, []), found, at[name]) for name in names)
    grouped = any(len(paths) > 1 for paths in members.values())
    return Graph(
        name="dataflow",
        title="Data flow of the model",
        nodes=nodes,
        links=tuple(Link(source, target, ", ".join(ops)) for (source, target), ops in links.items()),
        guilty=tuple(path for path, state in health.items() if state == "guilty"),
        notes=(f"{len(health):,} layers are shown as {len(names):,} groups",) if grouped else (),
        empty="" if nodes else "no layer was called",
    )


def _nodes(run: RunRecord) -> list[str]:
    """Return the layers without child layers, and the modules around them that have an output of their own: a residual
    block adds its input to its last layer's output.
    """
    joints = {path for edge in run.layout.edges for path in (edge.source, edge.target)}
    shown = [layer.path for layer in run.layout.layers if layer.leaf or layer.path in joints]
    return shown or list(run.layout.by_path)


def _guilty_module(run: RunRecord, diagnosis: Diagnosis) -> str | None:
    """Return the module that the first cause names, if it is none of the nodes but holds some: it becomes a node where
    its output leaves it. None if there is no such module.
    """
    named = diagnosis.hypotheses[0].layer if diagnosis.hypotheses else None
    nodes = _nodes(run)
    if not named or named in nodes or not any(path.startswith(f"{named}.") for path in nodes):
        return None
    return named if guilty_of(diagnosis, {named})[0] else None


def _edges(run: RunRecord, module: str | None) -> list[Edge]:
    """Return the edges of the graph; those that lead out of the guilty module lead through its node."""
    if module is None:
        return list(run.layout.edges)
    inside = f"{module}."
    found: dict[tuple[str, str], Edge] = {}
    for edge in run.layout.edges:
        parts = [edge]
        if edge.source.startswith(inside) and not edge.target.startswith(inside):
            parts = [Edge(edge.source, module), Edge(module, edge.target, edge.ops)]
        for part in parts:
            found.setdefault((part.source, part.target), part)
    return list(found.values())


@dataclass(frozen=True)
class _Findings:
    """The state of each layer, and what it is by."""

    health: Mapping[str, str]
    """State of each layer that is a node, or part of one, in data-flow order."""
    broken: Mapping[str, int]
    """First step with NaN or infinite values of each layer that has some."""
    dry: Mapping[str, str]
    """Words for each layer that no gradient reaches."""


def _findings(run: RunRecord, diagnosis: Diagnosis, module: str | None) -> _Findings:
    """Return the state of each node in data-flow order, the guilty module after the layers in it."""
    broken, dry = _broken(run), without_gradient(run)
    layout, rank = run.layout, run.layout.depth
    ordered = sorted(_nodes(run), key=lambda path: rank.get(path, len(rank)))
    if module is not None:
        last = max(i for i, path in enumerate(ordered) if path.startswith(f"{module}."))
        ordered.insert(last + 1, module)
    guilty, bad = guilty_of(diagnosis, set(ordered))[0], touched(diagnosis) | broken.keys()

    def state(path: str) -> str:
        held = any(path.startswith(f"{one}.") for one in guilty)  # a layer in the guilty module that has the fault, too
        if path in guilty or (held and path in bad):
            return "guilty"
        if path in bad:
            return "bad"
        if path in dry:
            return "untrained"
        return "healthy" if path in layout.called else "unseen"

    return _Findings({path: state(path) for path in ordered}, broken, dry)


def _broken(run: RunRecord) -> dict[str, int]:
    """Return the first step with NaN or infinite values of each layer that has some."""
    rows = [row for kind in ("activation", "param_grad", "param") for row in run.layout.rows(kind)]
    if not rows or not len(run.history):
        return {}
    hit = run.history.stat(rows, "nonfinite", "max") > 0
    found: dict[str, int] = {}
    for i in np.flatnonzero(hit.any(axis=0)).tolist():
        layer, step = run.layout.sites[rows[i]].module, int(run.history.steps[hit[:, i].argmax()])
        found[layer] = min(step, found.get(layer, step))
    return found


def _groups(paths: list[str], most: int) -> dict[str, str]:
    """Return the node of each layer: itself, or its longest container that gives few enough nodes."""
    deepest = max((path.count(".") for path in paths), default=0)
    for depth in range(deepest, -1, -1):
        found = {path: ".".join(path.split(".")[: depth + 1]) for path in paths}
        if len(set(found.values())) <= most:
            return found
    # If no container gives few enough nodes, neighbours in data-flow order are grouped.
    each = -(-len(paths) // max(1, most))
    blocks = [paths[i : i + each] for i in range(0, len(paths), each)]
    return {path: f"{block[0]} … {block[-1]}" for block in blocks for path in block}


def _node(
    run: RunRecord,
    diagnosis: Diagnosis,
    name: str,
    paths: list[str],
    found: _Findings,
    at: tuple[float, float],
) -> Node:
    if not paths:
        hit = any(event.transition == "loss" for event in diagnosis.events)
        return Node(name, name, "symptom" if diagnosis.verdict == "failing" else "bad" if hit else "healthy", *at)
    state = min((found.health[path] for path in paths), key=WORST.index)
    worst = next(path for path in paths if found.health[path] == state)
    events = [event for event in diagnosis.events if event.layer in paths]
    said = [f"{event.kind.replace('_', ' ')} from step {event.first_step:,}" for event in events]
    steps = [found.broken[path] for path in paths if path in found.broken]
    if steps and not any("nonfinite" in event.kind for event in events):
        said.append(f"NaN or infinite values from step {min(steps):,}")
    said += [found.dry[worst]] if worst in found.dry else []
    layer = run.layout.by_path[worst]
    detail = "; ".join([layer.type if len(paths) == 1 else f"{len(paths)} layers", *said])
    step = min((*(event.first_step for event in events), *steps), default=None)
    label = name or layer.type
    if len(paths) == 1 and any(path.startswith(f"{name}.") for path in found.health) and state != "guilty":
        label = f"{label} (output)"  # of a module whose layers are nodes of their own
    return Node(name, label, state, *at, worst, step, detail)


VIEW = Member("dataflow", "the model's layers and their health", compute)
