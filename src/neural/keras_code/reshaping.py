"""Layers that arrange their input otherwise."""

from __future__ import annotations

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, given
from neural.pytorch.layer_code import arguments, sizes_text


def flatten(_: Use) -> LayerCode:
    """Return one axis with all elements."""
    return LayerCode("layers.Flatten")


def reshape(use: Use) -> LayerCode:
    """Return another shape of the same elements."""
    return LayerCode("layers.Reshape", str(tuple(use.values["target_shape"])))


def permute(use: Use) -> LayerCode:
    """Return the axes in another order."""
    return LayerCode("layers.Permute", str(tuple(use.values["dims"])))


def repeat(use: Use) -> LayerCode:
    """Return the input several times along a new axis."""
    return LayerCode("layers.RepeatVector", str(use.values["n"]))


def enlarge(use: Use) -> LayerCode:
    """Return each place several times, or values between places."""
    words = arguments(sizes_text(use.values["size"]), **given(use.values, interpolation="nearest"))
    return LayerCode("layers.UpSampling2D", words)


def pad(use: Use) -> LayerCode:
    """Return the input with zeros around it."""
    return LayerCode("layers.ZeroPadding2D", sizes_text(use.values["padding"]))


MEMBERS = (
    LayerWriter("Flatten", flatten),
    LayerWriter("Reshape", reshape),
    LayerWriter("Permute", permute),
    LayerWriter("RepeatVector", repeat),
    LayerWriter("UpSampling2D", enlarge),
    LayerWriter("ZeroPadding2D", pad),
)
