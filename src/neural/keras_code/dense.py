"""Dense and Output as `layers.Dense`."""

from __future__ import annotations

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, given
from neural.keras_code.weights import weight_words
from neural.pytorch.layer_code import arguments


def write(use: Use) -> LayerCode:
    """Return a dense layer with its activation."""
    values = use.values
    words = given(values, activation="linear", use_bias=True)
    return LayerCode("layers.Dense", arguments(values["units"], **words, **weight_words(values, "kernel", "bias")))


MEMBERS = (LayerWriter("Dense", write, keeps_steps=True), LayerWriter("Output", write, keeps_steps=True))
