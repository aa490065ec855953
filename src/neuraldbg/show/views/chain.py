"""The causal chain of the diagnosis as a graph: from the cause at the top to the symptom at the bottom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns.diagnosis import layer_words
from neuraldbg.show.forms import Graph, Link, Node
from neuraldbg.show.views.places import places
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns import ChainNode, Diagnosis, RunRecord


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Graph:
    """Return the nodes of the chain, in the order of time and data flow."""
    del run, choice
    chain = diagnosis.chain
    at = places([node.id for node in chain.nodes], [(edge.source, edge.target) for edge in chain.edges])
    titles = {one.cause: one.title for one in diagnosis.hypotheses if one.title}
    nodes = tuple(
        Node(node.id, _label(node, titles), node.role, *at[node.id], node.layer, node.step, _detail(node))
        for node in chain.nodes
    )
    return Graph(
        name="chain",
        title="Causal chain",
        nodes=nodes,
        links=tuple(Link(edge.source, edge.target, edge.why) for edge in chain.edges),
        empty="" if nodes else f"no causal chain: the verdict is {diagnosis.verdict}",
    )


def _label(node: ChainNode, titles: Mapping[str, str]) -> str:
    """Return the title of a cause, and the label of any other node."""
    return titles.get(node.label, node.label) if node.role == "cause" else node.label


def _detail(node: ChainNode) -> str:
    """Return id of a cause, layer and step of a node, as far as they are known."""
    parts = [node.label] if node.role == "cause" else []
    if node.layer:
        parts.append(f"layer {layer_words(node.layer, node.layer_alias)}")
    return ", ".join([*parts, *([node.when] if node.when else [])])


VIEW = Member("chain", "the causal chain", compute)
