"""SqueezeExcitation, which Keras has not."""

from __future__ import annotations

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, given
from neural.pytorch.layer_code import arguments


def write(use: Use) -> LayerCode:
    """Return a small network of the means of all channels that weighs each of them."""
    return LayerCode("SqueezeExcitation", arguments(**given(use.values, ratio=16)), helpers=("SqueezeExcitation",))


MEMBERS = (LayerWriter("SqueezeExcitation", write),)
