"""PyTorch source of a `Plan`: one member for each type of layer, one file for each family, registered in `FAMILIES`.

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

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neural.pytorch.layer_code import LayerWriter

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
"""All members by the canonical names of their types; blocks are written by `network_class.py`."""
