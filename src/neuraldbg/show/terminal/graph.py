"""A graph as text, top to bottom: a line a node, and between two of them how the one led to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.show.format.phrases import ROLES
from neuraldbg.show.terminal.chain import STYLE, label, link_line
from neuraldbg.show.terminal.frame import wrapped

if TYPE_CHECKING:
    from rich.text import Text

    from neuraldbg.show.forms import Graph, Node
    from neuraldbg.show.terminal.marks import Marks

HEALTH = {"healthy": "healthy", "bad": "suspect", "untrained": "suspect", "unseen": "inconclusive"}
"""Roles of layers, with the verdict whose sign they share."""
TOLD = ("bad", "untrained", "unseen")
"""Roles of layers that are said beside their names."""
CALM = ("healthy", "unseen")
"""Roles of nodes that go first where there is no room for all."""


def drawn(view: Graph, width: int, height: int | None, marks: Marks) -> list[Text]:
    """Return nodes in the order of the picture, from top to bottom, with the links between them."""
    ordered = sorted(view.nodes, key=lambda node: (node.y, node.x))
    kept = ordered if height is None else _kept(ordered, max(1, height // 2), view.guilty)
    known = {node.id: node for node in view.nodes}
    found: list[Text] = []
    before: Node | None = None
    for node in ordered:
        if node not in kept:
            continue
        if found:
            links = [link for link in view.links if link.target == node.id and link.source in known]
            words = link_line(links, known, before, marks)
            found += wrapped(words, width, "dim", marks, hang=2)
        guilty = node.layer in view.guilty or node.role == "guilty"
        signs = {**marks.role, **{role: marks.verdict[verdict] for role, verdict in HEALTH.items()}}
        sign = marks.guilty if guilty else signs.get(node.role, marks.dot)
        style = "bold red" if guilty else STYLE.get(node.role, "dim" if node.role == "unseen" else "")
        role = f" ({ROLES[node.role]})" if node.role in TOLD else ""
        found += wrapped(f"{sign} {label(node, marks)}{role}", width, style, marks, hang=2)
        before = node
    if len(kept) < len(ordered):
        found += wrapped(f"{marks.gap} {len(kept)} of {len(ordered)} are shown", width, "dim", marks)
    return found


def _kept(nodes: list[Node], most: int, guilty: tuple[str, ...]) -> list[Node]:
    """Return the nodes that fit: those that are not calm first, then in their order."""
    if len(nodes) <= most:
        return nodes
    calm = sorted(nodes, key=lambda node: node.role in CALM and node.layer not in guilty)
    return calm[: max(1, most - 1)]
