"""The names by which a user may refer to a layer: its exact path, or its type with an ordinal in execution order."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from neuraldbg.errors import UnknownLayer

if TYPE_CHECKING:
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
_ORDINAL = re.compile(r"^([A-Za-z][A-Za-z0-9]*?)_?(\d+)$")


def resolve(layout: Layout, name: str) -> str:
    """Return the path of the layer with a name. Raises UnknownLayer, which lists the nearest names.

    ``fc1`` is the layer at that path, or else the first linear layer in execution order; so are ``linear1`` and
    ``Dense_1``. Ordinals count from 1. The name of a parameter refers to its layer.
    """
    if name in layout.by_path:
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
    paths = [layer.path for layer in layout.layers if layer.path]
    near = difflib.get_close_matches(name, paths, n=3, cutoff=0.4) or paths[:3]
    raise UnknownLayer(name, near)


def _is(layer: Layer, kind: str) -> bool:
    return layer.type.lower() in _FAMILIES.get(kind, (kind,)) or layer.type.lower() == kind
