"""The positions of the nodes of a graph: each one level below all nodes that lead to it, beside others of its level."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def places(nodes: Sequence[str], links: Iterable[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Return x and y from 0 to 1 of nodes in their given order; links that go back are ignored.

    In a level, nodes are sorted by the mean position of the nodes that lead to them, so that few links cross.
    """
    position = {node: i for i, node in enumerate(nodes)}
    sources: dict[str, list[str]] = {node: [] for node in nodes}
    for source, target in links:
        if source in position and target in position and position[source] < position[target]:
            sources[target].append(source)
    level: dict[str, int] = {}
    for node in nodes:
        level[node] = 1 + max((level[source] for source in sources[node]), default=-1)
    levels: dict[int, list[str]] = {}
    for node in nodes:
        levels.setdefault(level[node], []).append(node)
    deepest = max(levels, default=0)
    found: dict[str, tuple[float, float]] = {}
    for depth in sorted(levels):
        wanted = {
            node: sum(found[source][0] for source in sources[node]) / len(sources[node]) if sources[node] else 0.5
            for node in levels[depth]
        }
        for i, node in enumerate(sorted(levels[depth], key=wanted.__getitem__)):
            found[node] = ((i + 0.5) / len(levels[depth]), (depth + 0.5) / (deepest + 1))
    return found
