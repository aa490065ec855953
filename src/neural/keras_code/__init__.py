"""Keras source of a `Plan`: one member for each type of layer, one file for each family, registered in `FAMILIES`.

layer_code.py        the contract of a member
network_function.py  layers -> `build_model()`, and a function for each block that runs at each step
training_code.py     loss, optimizer, schedule, metrics
model_file.py        all of it as one file
weights.py           initializers, regularizers and constraints
modules/             the layers and metrics that Keras lacks; only these files import keras
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neural.keras_code.layer_code import LayerWriter

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
)

WRITERS: dict[str, LayerWriter] = {
    member.type: member for family in FAMILIES for member in import_module(f"{__name__}.{family}").MEMBERS
}
"""All members by the canonical names of their types; blocks are written by `network_function.py`."""
