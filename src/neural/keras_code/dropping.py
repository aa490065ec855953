"""Dropout and noise."""

from __future__ import annotations

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, given
from neural.pytorch.layer_code import arguments


def drop(use: Use) -> LayerCode:
    """Return a dropout of single values, or of values together if it has a noise_shape."""
    values, together = use.values, use.values.get("noise_shape")
    if together is not None and len(together) == len(use.shape):
        together = (None, *together)  # in Keras the batch is a part of it
    words = arguments(values["rate"], noise_shape=together, **given(values, seed=None))
    return LayerCode(f"layers.{use.layer.type}", words)


def disturb(use: Use) -> LayerCode:
    """Return noise, by its standard deviation."""
    return LayerCode("layers.GaussianNoise", arguments(use.values["stddev"], **given(use.values, seed=None)))


MEMBERS = (
    LayerWriter("Dropout", drop, keeps_steps=True),
    *(LayerWriter(f"SpatialDropout{rank}D", drop, keeps_steps=rank == 1) for rank in (1, 2, 3)),
    LayerWriter("GaussianNoise", disturb, keeps_steps=True),
    LayerWriter("GaussianDropout", drop, keeps_steps=True),
    LayerWriter("AlphaDropout", drop, keeps_steps=True),
)
