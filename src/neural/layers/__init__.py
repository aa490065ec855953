"""The layers of the language: one file for each family, registered in `FAMILIES`.

`layer_type.py` is the contract, `parameter.py` the parameters. `LAYERS` has all of them under their names in Keras.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neural.layers.layer_type import LayerType

FAMILIES = (
    "activation",
    "attention",
    "convolution",
    "dense",
    "dropping",
    "embedding",
    "excitation",
    "merging",
    "normalization",
    "pooling",
    "recurrent",
    "reshaping",
    "unbuildable",
    "wrapping",
)

LAYERS: dict[str, LayerType] = {
    member.name: member for family in FAMILIES for member in import_module(f"{__name__}.{family}").MEMBERS
}
"""All types of layers by their canonical names."""

BY_NAME: dict[str, LayerType] = {
    name.lower(): member for member in LAYERS.values() for name in (*member.aliases, member.name)
}
"""All types by their names and aliases in lower case: names are read in any case."""
