"""SqueezeExcitation."""

from __future__ import annotations

from neural.pytorch.layer_code import LayerCode, LayerWriter, Use, arguments


def write(use: Use) -> LayerCode:
    """Return a small network of the means of all channels that weighs each of them."""
    words = arguments(use.channels, ratio=use.values["ratio"])
    return LayerCode(f"{use.me}({use.x})", f"SqueezeExcitation({words})", helpers=("SqueezeExcitation",))


MEMBERS = (LayerWriter("SqueezeExcitation", write, "first"),)
