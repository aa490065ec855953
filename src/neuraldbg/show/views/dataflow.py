"""The model as data flows through it, with the health of each layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import Graph, Link, Node
from neuraldbg.show.views.moments import guilty_of
from neuraldbg.show.views.picking import touched
from neuraldbg.show.views.places import places
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns import Diagnosis, RunRecord

LOSS = "loss"
WORST = ("guilty", "bad", "healthy", "unseen")
"""States of a layer, the worst first; a group of layers has its worst state."""


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Graph:
    """Return the layers and the edges read from the autograd graph; too many layers are grouped into nodes."""
    broken = _broken(run)
    health = _health(run, diagnosis, broken)
    within = _groups(list(health), choice.rows - 1)
    names = list(dict.fromkeys(within[path] for path in health))
    loss = LOSS if LOSS not in names else f"({LOSS})"
    order = {path: i for i, path in enumerate(health)}
    links: dict[tuple[str, str], tuple[str, ...]] = {}
    for edge in run.layout.edges:
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
    nodes = tuple(_node(run, diagnosis, name, members.get(name, []), health, broken, at[name]) for name in names)
    grouped = any(len(paths) > 1 for paths in members.values())
    return Graph(
        name="dataflow",
        title="Data flow of the model",
        nodes=nodes,
        links=tuple(Link(source, target, ", ".join(ops)) for (source, target), ops in links.items()),
        guilty=tuple(path for path, state in health.items() if state == "guilty"),
        notes=(f"{len(health):,} layers are shown as {len(names):,} groups",) if grouped else (),
        empty="" if nodes else "no layer of a model was seen",
    )


def _health(run: RunRecord, diagnosis: Diagnosis, broken: Mapping[str, int]) -> dict[str, str]:
    """Return the state of each layer without child layers, in data-flow order, and of blocks with a separate output: a
    residual block that adds its input to its last layer's output is a node.
    """
    layout, rank = run.layout, run.layout.depth
    joints = {path for edge in layout.edges for path in (edge.source, edge.target)}
    shown = [layer.path for layer in layout.layers if layer.leaf or layer.path in joints]
    ordered = sorted(shown or layout.by_path, key=lambda path: rank.get(path, len(rank)))
    guilty, bad = set(guilty_of(diagnosis, set(ordered))[0]), touched(diagnosis) | broken.keys()

    def state(path: str) -> str:
        if path in guilty:
            return "guilty"
        if path in bad:
            return "bad"
        return "healthy" if path in layout.called else "unseen"

    return {path: state(path) for path in ordered}


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
    health: Mapping[str, str],
    broken: Mapping[str, int],
    at: tuple[float, float],
) -> Node:
    if not paths:
        return Node(name, name, "symptom" if diagnosis.verdict == "failing" else "healthy", *at)
    state = min((health[path] for path in paths), key=WORST.index)
    worst = next(path for path in paths if health[path] == state)
    events = [event for event in diagnosis.events if event.layer in paths]
    said = [f"{event.kind.replace('_', ' ')} from step {event.first_step:,}" for event in events]
    steps = [broken[path] for path in paths if path in broken]
    if steps and not any("nonfinite" in event.kind for event in events):
        said.append(f"NaN or infinite values from step {min(steps):,}")
    layer = run.layout.by_path[worst]
    detail = "; ".join([layer.type if len(paths) == 1 else f"{len(paths)} layers", *said])
    step = min((*(event.first_step for event in events), *steps), default=None)
    return Node(name, name or layer.type, state, *at, worst, step, detail)


VIEW = Member("dataflow", "the model's layers and their health", compute)
