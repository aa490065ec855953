"""The causal chain as a small vertical drawing, top to bottom as it happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from neuraldbg.nouns import Chain, ChainNode
    from neuraldbg.show.terminal.marks import Marks

FIRST, LAST = 6, 3
"""Numbers of nodes shown of a long chain: at its beginning, with the cause, and at its end, with the symptom."""
STYLE = {"cause": "bold", "event": "", "symptom": "bold red"}


class Point(Protocol):
    """A node of a Chain, or of a view that is a Graph."""

    @property
    def id(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def layer(self) -> str | None: ...
    @property
    def step(self) -> int | None: ...


class Arrow(Protocol):
    """An arrow that leads from one node to another."""

    @property
    def source(self) -> str: ...
    @property
    def why(self) -> str: ...


def chain_lines(chain: Chain, marks: Marks) -> Iterator[tuple[str, str]]:
    """Yield the drawing line by line, each with its style."""
    nodes = {node.id: node for node in chain.nodes}
    before: ChainNode | None = None
    for node in _cut(chain.nodes):
        if node is None:
            yield f"{marks.gap}   (+{len(chain.nodes) - FIRST - LAST} more: --json)", "dim"
            before = None
            continue
        if before is not None or node is not chain.nodes[0]:
            edges = [edge for edge in chain.edges if edge.target == node.id and edge.source in nodes]
            yield link_line(edges, nodes, before, marks), "dim"
        yield f"{marks.role.get(node.role, marks.dot)} {label(node, marks, node.when)}", STYLE.get(node.role, "")
        before = node


def chain_sentence(chain: Chain, marks: Marks, titles: Mapping[str, str]) -> str:
    """Return the chain in one line, from the cause to the symptom; a step is said where it changes."""
    parts: list[str] = []
    told = {node.label for node in chain.nodes if node.role == "event"}
    step: int | None = None
    for node in _cut(chain.nodes):
        if node is None:
            parts.append(f"({len(chain.nodes) - FIRST - LAST} more)")
            continue
        if node.role == "symptom" and node.label in told:
            continue
        where = f" in {node.layer}" if node.role == "event" and node.layer and node.layer not in node.label else ""
        when = f" ({node.when})" if node.step not in (None, step) and f"step {node.step}" not in node.label else ""
        parts.append(f"{titles.get(node.label) or node.label}{where}{when}")
        step = node.step if node.step is not None else step
    return f" {marks.arrow} ".join(parts)


def _cut(nodes: tuple[ChainNode, ...]) -> Iterator[ChainNode | None]:
    if len(nodes) <= FIRST + LAST + 1:
        yield from nodes
        return
    yield from nodes[:FIRST]
    yield None
    yield from nodes[-LAST:]


def link_line(links: Sequence[Arrow], nodes: Mapping[str, Point], before: Point | None, marks: Marks) -> str:
    """Return the line above a node that ``links`` lead to; if none comes from its neighbour, it names the source."""
    if any(before is not None and link.source == before.id for link in links):
        direct = next(link for link in links if before is not None and link.source == before.id)
        return f"{marks.line} {direct.why}".rstrip()
    if links:
        why = f" ({links[0].why})" if links[0].why else ""
        return f"{marks.gap} from: {nodes[links[0].source].label}{why}"
    return marks.gap


def label(node: Point, marks: Marks, when: str = "") -> str:
    """Return the label of a node, with the layer and the step, or ``when`` in its place, unless it has them already."""
    parts = [node.label]
    if node.layer and node.layer not in node.label:
        parts.append(node.layer)
    if node.step is not None and f"step {node.step}" not in node.label:
        parts.append(when or f"step {node.step}")
    return f" {marks.dot} ".join(parts)
