"""Convolutions, which Keras has all."""

from __future__ import annotations

from neural.keras_code.layer_code import LayerCode, LayerWriter, Use, given
from neural.keras_code.weights import weight_words
from neural.pytorch.layer_code import arguments, sizes_text


def _sizes(use: Use, *names: str) -> dict[str, str]:
    """Return the sizes that are not 1."""
    found = {name: use.values[name] for name in names if use.values.get(name)}
    return {name: sizes_text(sizes) for name, sizes in found.items() if set(sizes) != {1}}


def convolve(use: Use) -> LayerCode:
    """Return a convolution with its activation."""
    values, kind = use.values, use.layer.type
    depthwise, separable = kind.startswith("Depthwise"), kind.startswith("Separable")
    weights = ("depthwise", "bias") if depthwise else ("depthwise", "pointwise", "bias") if separable else ()
    rest = {"depth_multiplier": 1} if depthwise or separable else {}
    rest |= {"groups": 1} if "groups" in values else {}
    extra = values.get("output_padding")
    words = arguments(
        *(() if depthwise else (values["filters"],)),
        sizes_text(values["kernel_size"]),
        **_sizes(use, "strides"),
        **given(values, padding="valid"),
        output_padding=sizes_text(extra) if extra else None,
        **_sizes(use, "dilation_rate"),
        **given(values, **rest, activation="linear", use_bias=True),
        **weight_words(values, *(weights or ("kernel", "bias"))),
    )
    return LayerCode(f"layers.{kind}", words)


MEMBERS = (
    *(LayerWriter(f"Conv{rank}D", convolve) for rank in (1, 2, 3)),
    *(LayerWriter(f"Conv{rank}DTranspose", convolve) for rank in (1, 2, 3)),
    *(LayerWriter(f"{word}Conv{rank}D", convolve) for word in ("Depthwise", "Separable") for rank in (1, 2)),
)
