"""Keras source of a `Plan`: one member for each type of layer, one file for each family, in `WRITERS`.

layer_code.py        the contract of a member
network_function.py  layers -> `build_model()`, and a function for each block that runs at each step
training_code.py     loss, optimizer, schedule, metrics
model_file.py        all of it as one file
weights.py           initializers, regularizers and constraints
modules/             the layers and metrics that Keras lacks; only these files import keras
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neural.layer_writing import writers

if TYPE_CHECKING:
    from neural.keras_code.layer_code import LayerWriter

WRITERS: dict[str, LayerWriter] = writers(__name__)
"""All members by the canonical names of their types; blocks are written by `network_function.py`."""
