"""Pooling: of windows, of the whole input, and to a given size."""

from __future__ import annotations

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, given
from neural.pytorch.layer_code import arguments, sizes_text


def pool(use: Use) -> LayerCode:
    """Return a window."""
    values, strides = use.values, use.values["strides"]
    size = sizes_text(values["pool_size"])
    words = {"strides": sizes_text(strides)} if strides and strides != values["pool_size"] else {}
    return LayerCode(f"layers.{use.layer.type}", arguments(size, **words, **given(values, padding="valid")))


def pool_all(use: Use) -> LayerCode:
    """Return one value for each channel."""
    return LayerCode(f"layers.{use.layer.type}", arguments(**given(use.values, keepdims=False)))


def pool_to(use: Use) -> LayerCode:
    """Return as many windows as asked for."""
    return LayerCode(f"layers.{use.layer.type}", sizes_text(use.values["output_size"]))


MEMBERS = tuple(
    LayerWriter(f"{prefix}{kind}Pooling{rank}D", write)
    for prefix, write in (("", pool), ("Global", pool_all), ("Adaptive", pool_to))
    for kind in ("Max", "Average")
    for rank in (1, 2, 3)
)
