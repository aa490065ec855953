"""Paths of layers, short enough for a legend and still different from each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 26
"""Largest length of a name in characters."""


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Cut paths from the left at a dot, where they are alike; those that would become equal keep both ends."""
    cut = {path: _from_the_left(path) for path in paths}
    taken = list(cut.values())
    return {path: short if taken.count(short) == 1 else _both_ends(path) for path, short in cut.items()}


def _from_the_left(path: str) -> str:
    if len(path) <= LONGEST:
        return path or "(model)"
    tail = path[1 - LONGEST :]
    return "…" + (tail.partition(".")[2] or tail)


def _both_ends(path: str) -> str:
    if len(path) <= LONGEST:
        return path
    head = LONGEST // 2
    return f"{path[:head]}…{path[1 + head - LONGEST :]}"
