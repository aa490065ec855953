"""Convolutions as `nn.Conv1d` to `nn.Conv3d`, with Keras's padding."""

from __future__ import annotations

from functools import partial
from math import prod, sqrt
from typing import Any

from neural.layer_writing import NotWritten
from neural.pytorch.activations import activated
from neural.pytorch.layer_code import LayerCode, LayerWriter, Use, arguments, sizes_text, unless
from neural.pytorch.padding import pad_arguments, same
from neural.pytorch.weights import first_weights


def padded(use: Use, ones: tuple[int, ...]) -> tuple[str, str | None, tuple[str, ...], str]:
    """Return the input of a convolution, its argument `padding`, the helpers and a comment."""
    values, x = use.values, use.x
    kernel, strides, dilations = values["kernel_size"], values["strides"], values.get("dilation_rate", ones)
    if values["padding"] == "causal":
        return f"F.pad({x}, ({(kernel[0] - 1) * dilations[0]}, 0))", None, (), "no step reads a later one"
    if values["padding"] != "same":
        return x, None, (), ""
    pairs = same(use.shape[:-1], kernel, strides, dilations)
    if pairs is None:
        words = f"pad_same({x}, {tuple(kernel)}, {tuple(strides)})"
        return words, None, ("pad_same",), ""
    before = tuple(pair[0] for pair in pairs)
    if all(pair[0] == pair[1] for pair in pairs):
        return x, sizes_text(before) if any(before) else None, (), ""
    return f"F.pad({x}, {pad_arguments(pairs)})", None, (), 'padding="same" of Keras'


def _module(rank: int, use: Use, inputs: int, outputs: int, padding: str | None, groups: int, bias: bool) -> str:
    values = use.values
    words = arguments(
        inputs,
        outputs,
        kernel_size=sizes_text(values["kernel_size"]),
        stride=None if set(values["strides"]) == {1} else sizes_text(values["strides"]),
        padding=padding,
        dilation=None if set(values["dilation_rate"]) == {1} else sizes_text(values["dilation_rate"]),
        groups=unless(groups, 1),
        bias=unless(bias, True),
    )
    return f"nn.Conv{rank}d({words})"


def convolve(rank: int, use: Use) -> LayerCode:
    """Return a convolution with its activation."""
    values = use.values
    x, padding, helpers, comment = padded(use, (1,) * rank)
    bias = {"bias": f"{use.me}.bias"} if values["use_bias"] else {}
    return LayerCode(
        activated(f"{use.me}({x})", values["activation"], 1),
        _module(rank, use, use.channels, values["filters"], padding, values["groups"], values["use_bias"]),
        weights=first_weights(
            values,
            {"kernel": f"{use.me}.weight", **bias},
            {"kernel": _fans(values, use.channels // values["groups"], values["filters"])},
        ),
        helpers=helpers,
        comment=comment,
    )


def _fans(values: Any, inputs: int, outputs: int) -> tuple[int, int]:
    """Return the inputs and outputs of a kernel as Keras counts them: axes -2 and -1 of its shape times its places."""
    places = prod(values["kernel_size"])
    return places * inputs, places * outputs


def _depthwise_weights(use: Use, weight: str) -> tuple[str, ...]:
    """Return the statement for Glorot's weights, of which Keras counts all channels as inputs."""
    values = use.values
    given = values["depthwise_initializer"]
    if str(getattr(given, "name", given)).lower() == "orthogonal":
        raise NotWritten("has the depthwise_initializer orthogonal, which is not built")
    fans = _fans(values, use.channels, values["depth_multiplier"])
    other = first_weights(values, {"depthwise": weight}, {"depthwise": fans})
    if other:
        return other
    limit = sqrt(6 / sum(fans))
    return (f"nn.init.uniform_({weight}, -{limit:.6g}, {limit:.6g})",)


def depthwise(rank: int, use: Use) -> LayerCode:
    """Return a convolution of each channel by itself."""
    values, channels = use.values, use.channels
    x, padding, helpers, comment = padded(use, (1,) * rank)
    bias = first_weights(values, {"bias": f"{use.me}.bias"}) if values["use_bias"] else ()
    outputs = channels * values["depth_multiplier"]
    return LayerCode(
        activated(f"{use.me}({x})", values["activation"], 1),
        _module(rank, use, channels, outputs, padding, channels, values["use_bias"]),
        weights=(*_depthwise_weights(use, f"{use.me}.weight"), *bias),
        helpers=helpers,
        comment=comment,
    )


def separate(rank: int, use: Use) -> LayerCode:
    """Return a depthwise convolution with a 1x1 convolution after it."""
    values, channels = use.values, use.channels
    x, padding, helpers, comment = padded(use, (1,) * rank)
    middle = channels * values["depth_multiplier"]
    depth = _module(rank, use, channels, middle, padding, channels, bias=False)
    words = arguments(middle, values["filters"], kernel_size=1, bias=unless(values["use_bias"], True))
    bias = {"bias": f"{use.me}[1].bias"} if values["use_bias"] else {}
    return LayerCode(
        activated(f"{use.me}({x})", values["activation"], 1),
        f"nn.Sequential({depth}, nn.Conv{rank}d({words}))",
        weights=(
            *_depthwise_weights(use, f"{use.me}[0].weight"),
            *first_weights(
                values, {"pointwise": f"{use.me}[1].weight", **bias}, {"pointwise": (middle, values["filters"])}
            ),
        ),
        helpers=helpers,
        comment=comment,
    )


def _cut(kernel: int, stride: int, dilation: int, padding: str, extra: int | None) -> tuple[int, int]:
    """Return what Keras cuts from both ends of a transposed convolution; below 0 it adds zeros."""
    reach = (kernel - 1) * dilation + 1
    if padding == "valid":
        return 0, -(max(reach, stride) - reach if extra is None else extra)
    total = stride + reach - 2 if extra is None else reach + reach % 2 - 2 + extra
    left = min(total // 2 + total % 2, reach - 1)
    return reach - 1 - left, reach - 1 - (total - left)


def transpose(rank: int, use: Use) -> LayerCode:
    """Return a transposed convolution. Torch cuts both ends equally, so what Keras cuts more is cut afterwards."""
    values = use.values
    extra = values["output_padding"] or (None,) * rank
    cuts = [
        _cut(*each[:3], values["padding"], each[3])
        for each in zip(values["kernel_size"], values["strides"], values["dilation_rate"], extra, strict=True)
    ]
    begin = tuple(left for left, _ in cuts)
    more = tuple(right - left for left, right in cuts)
    added = tuple(max(-each, 0) for each in more)
    strides, dilations = values["strides"], values["dilation_rate"]
    fits = all(each < max(*pair) for each, pair in zip(added, zip(strides, dilations, strict=True), strict=True))
    words = arguments(
        use.channels,
        values["filters"],
        kernel_size=sizes_text(values["kernel_size"]),
        stride=None if set(strides) == {1} else sizes_text(strides),
        padding=sizes_text(begin) if any(begin) else None,
        output_padding=sizes_text(added) if any(added) and fits else None,
        dilation=None if set(dilations) == {1} else sizes_text(dilations),
        bias=unless(values["use_bias"], True),
    )
    call = f"{use.me}({use.x})"
    comment = ""
    if not fits:
        call, comment = f"F.pad({call}, {pad_arguments((0, each) for each in added)})", "as Keras pads"
    if any(each > 0 for each in more):
        ends = ", ".join(f":-{each}" if each > 0 else ":" for each in more)
        call, comment = f"{call}[:, :, {ends}]", 'padding="same" of Keras'
    bias = {"bias": f"{use.me}.bias"} if values["use_bias"] else {}
    return LayerCode(
        activated(call, values["activation"], 1),
        f"nn.ConvTranspose{rank}d({words})",
        weights=first_weights(
            values, {"kernel": f"{use.me}.weight", **bias}, {"kernel": _fans(values, values["filters"], use.channels)}
        ),
        comment=comment,
    )


MEMBERS = (
    *(LayerWriter(f"Conv{rank}D", partial(convolve, rank), "first") for rank in (1, 2, 3)),
    *(LayerWriter(f"Conv{rank}DTranspose", partial(transpose, rank), "first") for rank in (1, 2, 3)),
    *(LayerWriter(f"DepthwiseConv{rank}D", partial(depthwise, rank), "first") for rank in (1, 2)),
    *(LayerWriter(f"SeparableConv{rank}D", partial(separate, rank), "first") for rank in (1, 2)),
)
