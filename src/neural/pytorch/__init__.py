"""PyTorch source of a `Plan`: one member for each type of layer, one file for each family, in `WRITERS`.

layer_code.py        the contract of a member
network_class.py     layers -> the class of the model, and a class for each block
training_code.py     loss, optimizer, schedule, the loop
metrics_code.py      metrics
model_file.py        all of it as one file
module_source.py     the text of the modules that torch lacks
code_layout.py       lines of at most 120 columns
modules/             the modules that torch lacks; only these files import torch
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neural.layer_writing import writers

if TYPE_CHECKING:
    from neural.pytorch.layer_code import LayerWriter

WRITERS: dict[str, LayerWriter] = writers(__name__)
"""All members by the canonical names of their types; blocks are written by `network_class.py`."""
