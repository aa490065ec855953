"""The causal chain of the diagnosis as a graph: from the cause at the top to the symptom at the bottom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.show.forms import Graph, Link, Node
from neuraldbg.show.views.places import places
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Graph:
    """Return the nodes of the chain, in the order of time and data flow."""
    del run, choice
    chain = diagnosis.chain
    at = places([node.id for node in chain.nodes], [(edge.source, edge.target) for edge in chain.edges])
    nodes = tuple(
        Node(node.id, node.label, node.role, *at[node.id], node.layer, node.step, _detail(node.layer, node.step))
        for node in chain.nodes
    )
    return Graph(
        name="chain",
        title="How it came about",
        nodes=nodes,
        links=tuple(Link(edge.source, edge.target, edge.why) for edge in chain.edges),
        empty="" if nodes else f"there is no chain to show: the verdict is {diagnosis.verdict}",
    )


def _detail(layer: str | None, step: int | None) -> str:
    parts = ([f"layer {layer}"] if layer else []) + ([f"step {step:,}"] if step is not None else [])
    return ", ".join(parts)


VIEW = Member("chain", "the causal chain", compute)
