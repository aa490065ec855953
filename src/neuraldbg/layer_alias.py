"""The names by which a user may refer to a layer: its exact path, or its type with an ordinal in execution order."""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from neuraldbg.arguments import layer_name
from neuraldbg.errors import UnknownLayer
from neuraldbg.nouns.layout import NUMBERED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.nouns.layout import Layer, Layout

_FAMILIES = {
    "linear": ("linear",),
    "fc": ("linear",),
    "dense": ("linear",),
    "conv": ("conv1d", "conv2d", "conv3d", "convtranspose1d", "convtranspose2d", "convtranspose3d"),
    "bn": ("batchnorm1d", "batchnorm2d", "batchnorm3d", "syncbatchnorm"),
    "batchnorm": ("batchnorm1d", "batchnorm2d", "batchnorm3d", "syncbatchnorm"),
    "ln": ("layernorm",),
    "norm": ("layernorm", "rmsnorm", "groupnorm", "batchnorm1d", "batchnorm2d", "batchnorm3d"),
    "emb": ("embedding", "embeddingbag"),
    "attention": ("multiheadattention",),
    "attn": ("multiheadattention",),
}
_SPOKEN = ("conv", "batchnorm")
"""Families by which a layer is called; of others it is the type itself."""
_ORDINAL = re.compile(r"^([A-Za-z][A-Za-z0-9]*?)_?(\d+)$")


def resolve(layout: Layout, name: str) -> str:
    """Return the path of the layer with a name. Raises UnknownLayer, which lists the nearest names.

    ``fc1`` is the layer at that path, or else the first linear layer in execution order; so are ``linear1`` and
    ``Dense_1``. Ordinals count from 1. The name of a parameter refers to its layer.
    """
    if layer_name(name) in layout.by_path:
        return name
    match = _ORDINAL.match(name)
    if match:
        kind, ordinal = match[1].lower(), int(match[2])
        same = [layer.path for layer in layout.layers if _is(layer, kind)]
        if 1 <= ordinal <= len(same):
            return same[ordinal - 1]
    owner, _, parameter = name.rpartition(".")
    layer = layout.by_path.get(owner)
    if layer is not None and parameter in layer.params:
        return owner
    raise UnknownLayer(name, nearest(layout, name))


def matching(layout: Layout, pattern: str) -> frozenset[str]:
    """Return the paths of the layers that a pattern names, as ``fnmatch`` has it. The path of a whole model is "".

    ``attention.*`` is ``layers.0.attention.query``, too. A pattern that fits no path is one of names by type and order:
    ``relu*`` and ``Linear_*`` are all layers of that type.
    """
    called = ((layer.path, alias(layout, layer.path)) for layer in layout.layers)
    found = {path for path, other in called if fits(pattern, path, other)}
    if not found:
        found = {path for path, name in _by_order(layout) if fnmatchcase(name, pattern.lower())}
    if not found:
        try:
            found = {resolve(layout, pattern)}
        except UnknownLayer:
            return frozenset()
    return frozenset(found)


def fits(pattern: str, path: str, other: str = "") -> bool:
    """Return True if a pattern is that of a path, or of its last parts, as ``fnmatch`` has it; or of its other name."""
    ends = (pattern, f"*.{pattern}")
    return any(fnmatchcase(name, end) for name in (path, f".{path}", other) for end in ends)


def _by_order(layout: Layout) -> Iterator[tuple[str, str]]:
    """Yield the path of each layer with each of its names by type and order, in lower case."""
    counts: Counter[str] = Counter()
    for layer in layout.layers:
        type_ = layer.type.lower()
        for kind in {type_, *(name for name, types in _FAMILIES.items() if type_ in types)}:
            counts[kind] += 1
            yield layer.path, f"{kind}{counts[kind]}"
            yield layer.path, f"{kind}_{counts[kind]}"


def nearest(layout: Layout, name: str, most: int = 3) -> list[str]:
    """Return the names of the layers nearest to one that is none."""
    if same := last_of_type(layout, name, most):
        return same
    paths = [layer.path for layer in layout.layers if layer.path]
    known = {called.lower(): called for path in paths for called in (path, alias(layout, path)) if called}
    near = difflib.get_close_matches(name.lower(), known, n=most, cutoff=0.6)
    return [known[one] for one in near] or [alias(layout, path) or path for path in paths[:most]]


def last_of_type(layout: Layout, name: str, most: int = 3) -> list[str]:
    """Return the last layers of the type in a name with an ordinal: for ``linear9`` where there are two linear layers.
    Empty if there is none of that type.
    """
    match = _ORDINAL.match(name)
    same = [layer.path for layer in layout.layers if _is(layer, match[1].lower())] if match else []
    return [alias(layout, path) or path for path in same[-most:][::-1]]


def alias(layout: Layout, path: str) -> str:
    """Return the name by type and order of a layer whose path is a number: ``linear1`` for ``0``. "" for any other
    layer, whose path is the user's own name for it.
    """
    layer = layout.by_path.get(path)
    if layer is None or not NUMBERED.fullmatch(path):
        return ""
    type_ = layer.type.lower()
    kind = next((short for short in _SPOKEN if type_ in _FAMILIES[short]), type_)
    at, places = layout.position[path], layout.positions_of_type
    before = sum(bisect_left(places.get(each, ()), at) for each in {kind, *_FAMILIES.get(kind, ())})
    return f"{kind}{'_' if kind[-1:].isdigit() else ''}{before + 1}"


def _is(layer: Layer, kind: str) -> bool:
    return layer.type.lower() in _FAMILIES.get(kind, (kind,)) or layer.type.lower() == kind
