"""Layers that bring mean and variance of their input to trained values."""

from __future__ import annotations

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, given
from neural.keras_code.weights import weight_words
from neural.pytorch.layer_code import arguments


def normalize(use: Use) -> LayerCode:
    """Return the normalisation of the same name; that of instances is that of groups of one channel."""
    values, kind = use.values, use.layer.type
    own = {"momentum": 0.99} if kind == "BatchNormalization" else {}
    groups = {"GroupNormalization": values.get("groups"), "InstanceNormalization": -1}.get(kind)
    moving = ("moving_mean", "moving_variance") if kind == "BatchNormalization" else ()
    words = arguments(
        groups=None if groups == 32 else groups,
        **given(values, **own, epsilon=1e-3, center=True, scale=True),
        **weight_words(values, "beta", "gamma", *moving),
    )
    made = "GroupNormalization" if kind == "InstanceNormalization" else kind
    return LayerCode(f"layers.{made}", words)


MEMBERS = tuple(
    LayerWriter(f"{word}Normalization", normalize, keeps_steps=True) for word in ("Batch", "Layer", "Group", "Instance")
)
