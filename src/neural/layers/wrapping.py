"""Layers around another layer: Bidirectional, TimeDistributed, ResidualConnection.

Their shapes follow from the layer or the block within, so `neural.check` infers them.
"""

from __future__ import annotations

from neural.layers.layer_type import LayerType
from neural.layers.parameter import Parameter, one_of, optional

MEMBERS = (
    LayerType(
        "Bidirectional",
        "Reads a sequence in both directions, each with a copy of a recurrent layer.",
        (
            Parameter(
                "merge_mode",
                optional(one_of("concat", "sum", "mul", "ave")),
                "concat",
                "How the outputs of both directions become one",
            ),
        ),
        wraps=True,
    ),
    LayerType("TimeDistributed", "Applies a layer to each step of a sequence.", wraps=True),
    LayerType(
        "ResidualConnection",
        "Adds the output of its block to its input.",
    ),
)
