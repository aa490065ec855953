"""The matching of the layers of two runs: two layouts enter, pairs of layers leave.

A path is a name that a person gave, so equal paths are the same layer; but the numbers of an ``nn.Sequential`` are no
names: in another sequence they shift. Such layers, and renamed ones, are matched by type, settings and parameters with
their sizes, and by the layers before and after them in the data flow, if there is only one way. The rest is listed as
layers of one run only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.comparison import LayerPair

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    import numpy.typing as npt

    from neuraldbg.nouns import Layer, Layout, RunRecord

MOST = 2_000
"""Largest number of layers of a run with which layers without a common path are matched by structure: the table of the
alignment has one element for each pair of layers."""


@dataclass(frozen=True)
class Matching:
    """The matched layers of two runs, and those that only one has."""

    pairs: Mapping[str, str]
    """Path in the second run by path in the first."""
    paired: tuple[LayerPair, ...]
    """Pairs with different paths or types."""
    only: tuple[tuple[str, ...], tuple[str, ...]]
    """Paths of leaves that were not matched, for each run, in data-flow order."""
    leaves: tuple[int, int]
    """Number of leaves of each run."""


def match(one: RunRecord, other: RunRecord) -> Matching:
    """Match the layers of two runs."""
    layouts = one.layout, other.layout
    leaves = tuple(_leaves(layout) for layout in layouts)
    marks = [_signatures(run) for run in (one, other)]
    pairs = _by_path(layouts, marks)
    structure = _by_structure(leaves, marks, pairs)
    pairs |= structure
    taken = set(pairs.values())
    for layer in leaves[0]:  # what is left at the same place is the same layer with another type
        twin = layouts[1].by_path.get(layer.path)
        free = layer.path not in pairs and twin is not None and twin.leaf and twin.path not in taken
        if free and _in_order(layouts, pairs, layer.path):
            pairs[layer.path] = layer.path
            taken.add(layer.path)
    pairs |= _containers(layouts, pairs)
    changed = []
    for path, twin_path in pairs.items():
        types = layouts[0].by_path[path].type, layouts[1].by_path[twin_path].type
        if path != twin_path or types[0] != types[1]:
            changed.append(LayerPair(path, twin_path, "structure" if path != twin_path else "type", types))
    taken = set(pairs.values())
    return Matching(
        pairs,
        tuple(changed),
        (
            tuple(layer.path for layer in leaves[0] if layer.path not in pairs),
            tuple(layer.path for layer in leaves[1] if layer.path not in taken),
        ),
        (len(leaves[0]), len(leaves[1])),
    )


def _leaves(layout: Layout) -> list[Layer]:
    """Return the layers that compute (leaves, or with own parameters), in data-flow order."""
    found = [layer for layer in layout.layers if layer.leaf or layer.params]
    return sorted(found, key=lambda layer: layout.depth[layer.path])


def _signatures(run: RunRecord) -> dict[str, Hashable]:
    """Return type, settings and parameters of each layer, with the sizes of the parameters as far as they were read."""
    sizes: dict[str, list[tuple[str, int]]] = {}
    read = np.flatnonzero(run.history.read)
    rows = run.layout.rows("param")
    if len(read) and rows:
        total = run.history.row(int(read[-1]), "max")[:, 0]
        for row in rows:
            site = run.layout.sites[row]
            sizes.setdefault(site.module, []).append((site.name, int(total[row]) if row < len(total) else 0))
    return {
        layer.path: (
            layer.type,
            tuple(sorted((name, str(value)) for name, value in layer.settings.items())),
            layer.params,
            tuple(sorted(sizes.get(layer.path, ()))),
        )
        for layer in run.layout.layers
    }


def _by_path(layouts: tuple[Layout, Layout], marks: Sequence[Mapping[str, Hashable]]) -> dict[str, str]:
    """Pair leaves with equal paths and types, unless a number in the path belongs to a sequence that changed."""
    shifted = _shifted(layouts, marks)
    return {
        layer.path: layer.path
        for layer in _leaves(layouts[0])
        if layer.path in layouts[1].by_path
        and layouts[1].by_path[layer.path].type == layer.type
        and not any(layer.path == at or layer.path.startswith(f"{at}.") for at in shifted)
    }


def _shifted(layouts: tuple[Layout, Layout], marks: Sequence[Mapping[str, Hashable]]) -> list[str]:
    """Return the paths of the members of numbered sequences that changed."""
    members: list[dict[str, list[tuple[int, Hashable]]]] = [{}, {}]
    for found, layout, mark in zip(members, layouts, marks, strict=True):
        for path in layout.by_path:
            owner, _, last = path.rpartition(".")
            if last.isdecimal():
                found.setdefault(owner, []).append((int(last), mark[path]))
    return [
        f"{owner}.{number}" if owner else str(number)
        for owner, numbered in members[0].items()
        if sorted(n for n, _ in numbered) != sorted(n for n, _ in members[1].get(owner, ()))
        for number, _ in numbered
    ]


def _by_structure(
    leaves: Sequence[Sequence[Layer]], marks: Sequence[Mapping[str, Hashable]], pairs: Mapping[str, str]
) -> dict[str, str]:
    """Align the other layers, in data-flow order and between the paired ones; keep pairs that are the only way."""
    one, other = leaves
    if len(one) == len(pairs) or len(other) == len(pairs) or max(len(one), len(other)) > MOST:
        return {}
    taken = set(pairs.values())
    codes: dict[Hashable, int] = {}
    first = np.array([codes.setdefault(pairs.get(x.path, marks[0][x.path]), len(codes)) for x in one])
    second = np.array([codes.setdefault(y.path if y.path in taken else marks[1][y.path], len(codes)) for y in other])
    anchors = np.array([x.path in pairs for x in one])
    weight = (first[:, None] == second[None, :]) * np.where(anchors, len(one) + 1.0, 1.0)[:, None]
    best = _alignments(weight)
    found = {}
    for i, j in zip(*np.nonzero(best), strict=True):
        x, y = one[i].path, other[j].path
        if not anchors[i] and (x == y or (best[i].sum() == 1 and best[:, j].sum() == 1)):
            found[x] = y
    # A common path decides between ways that are equally good.
    named = {y for x, y in found.items() if x == y}
    return {x: y for x, y in found.items() if x == y or y not in named}


def _alignments(weight: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return a mask (N, M) of the pairs that belong to a heaviest alignment in the order of both."""

    def ahead(weight: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        total = np.zeros((weight.shape[0] + 1, weight.shape[1] + 1))
        for i, row in enumerate(weight):
            total[i + 1, 1:] = np.maximum.accumulate(np.maximum(total[i, 1:], total[i, :-1] + row))
        return total

    before, after = ahead(weight), ahead(weight[::-1, ::-1])[::-1, ::-1]
    through = before[:-1, :-1] + weight + after[1:, 1:]
    best: npt.NDArray[np.bool_] = (weight > 0) & (through >= before[-1, -1] - 0.5)
    return best


def _in_order(layouts: tuple[Layout, Layout], pairs: Mapping[str, str], path: str) -> bool:
    """Return True if the layers around a path in the one run are around the same path in the other."""
    depth = layouts[0].depth, layouts[1].depth
    return all((depth[0][x] < depth[0][path]) == (depth[1][y] < depth[1][path]) for x, y in pairs.items())


def _containers(layouts: tuple[Layout, Layout], pairs: Mapping[str, str]) -> dict[str, str]:
    """Pair modules that contain others: by path, else if all their leaves were matched into one of the same type."""
    found: dict[str, str] = {}
    inside = [_held(layout) for layout in layouts]
    by_content: dict[frozenset[str], list[str]] = {}
    for path, held in inside[1].items():
        by_content.setdefault(held, []).append(path)
    for path, held in inside[0].items():
        if path in inside[1]:
            if path == "" or any(pairs.get(leaf, "") in inside[1][path] for leaf in held):
                found[path] = path
            continue
        image = frozenset(pairs.get(leaf, "\0") for leaf in held)
        same = [p for p in by_content.get(image, ()) if layouts[1].by_path[p].type == layouts[0].by_path[path].type]
        if held and len(same) == 1:
            found[path] = same[0]
    return found


def _held(layout: Layout) -> dict[str, frozenset[str]]:
    """Return the leaves in each module that contains others."""
    leaves = {layer.path for layer in _leaves(layout)}
    outer: dict[str, set[str]] = {layer.path: set() for layer in layout.layers if layer.path not in leaves}
    for leaf in leaves:
        parts = leaf.split(".")
        for depth in range(len(parts)):
            owner = ".".join(parts[:depth])
            if owner in outer:
                outer[owner].add(leaf)
    return {path: frozenset(held) for path, held in outer.items()}
