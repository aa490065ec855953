"""Layers that change each value by itself: Activation, and layers that only add to the loss."""

from __future__ import annotations

from neural.layers.layer_type import LayerType
from neural.layers.parameter import ACTIVATION, NOT_NEGATIVE, REQUIRED, Parameter

L1 = Parameter("l1", NOT_NEGATIVE, 0.0, "Factor of the sum of absolute values")
L2 = Parameter("l2", NOT_NEGATIVE, 0.0, "Factor of the sum of squares")

MEMBERS = (
    LayerType(
        "Activation",
        "Applies a function to each value.",
        (Parameter("activation", ACTIVATION, REQUIRED, "The function", aliases=("function",)),),
        positional=1,
    ),
    LayerType("ActivityRegularization", "Adds the size of its input to the loss.", (L1, L2), positional=2),
    LayerType("L1", "Adds the absolute values of its input to the loss.", (L1,), positional=1),
    LayerType("L2", "Adds the squares of its input to the loss.", (L2,), positional=1),
    LayerType("L1L2", "Adds absolute values and squares of its input to the loss.", (L1, L2), positional=2),
)
