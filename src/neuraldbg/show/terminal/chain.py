"""The causal chain as a small vertical drawing, top to bottom as it happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.nouns import Chain, ChainNode
    from neuraldbg.show.terminal.marks import Marks

FIRST, LAST = 6, 3
"""Nodes shown of a long chain: its beginning, where the cause is, and its end, what the user saw."""
STYLE = {"cause": "bold", "event": "", "symptom": "bold red"}


def chain_lines(chain: Chain, marks: Marks) -> Iterator[tuple[str, str]]:
    """Give the drawing line by line, each with its style."""
    nodes = {node.id: node for node in chain.nodes}
    before: ChainNode | None = None
    for node in _cut(chain.nodes):
        if node is None:
            yield f"{marks.gap}   (+{len(chain.nodes) - FIRST - LAST} more: --json)", "dim"
            before = None
            continue
        if before is not None or node is not chain.nodes[0]:
            yield from _link(chain, nodes, before, node, marks)
        yield f"{marks.role.get(node.role, marks.dot)} {_label(node, marks)}", STYLE.get(node.role, "")
        before = node


def _cut(nodes: tuple[ChainNode, ...]) -> Iterator[ChainNode | None]:
    if len(nodes) <= FIRST + LAST + 1:
        yield from nodes
        return
    yield from nodes[:FIRST]
    yield None
    yield from nodes[-LAST:]


def _link(
    chain: Chain, nodes: dict[str, ChainNode], before: ChainNode | None, node: ChainNode, marks: Marks
) -> Iterator[tuple[str, str]]:
    """The line between two nodes; where the later follows from an earlier one than its neighbour, say from which."""
    edges = [edge for edge in chain.edges if edge.target == node.id and edge.source in nodes]
    direct = next((edge for edge in edges if before is not None and edge.source == before.id), None)
    if direct is not None:
        yield f"{marks.line} {direct.why}".rstrip(), "dim"
    elif edges:
        edge = edges[0]
        why = f" ({edge.why})" if edge.why else ""
        yield f"{marks.gap} from: {nodes[edge.source].label}{why}", "dim"
    else:
        yield marks.gap, "dim"


def _label(node: ChainNode, marks: Marks) -> str:
    """The label, with the layer and the step that it does not name itself."""
    parts = [node.label]
    if node.layer and node.layer not in node.label:
        parts.append(node.layer)
    if node.step is not None and f"step {node.step}" not in node.label:
        parts.append(f"step {node.step}")
    return f" {marks.dot} ".join(parts)
