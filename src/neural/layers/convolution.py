"""Convolutions: Conv1D, Conv2D, Conv3D and their transposed, depthwise and separable forms."""

from __future__ import annotations

from functools import partial
from math import prod

from neural.layers.layer_type import (
    ACTIVATED,
    BIASED,
    WEIGHTED,
    Inferred,
    LayerType,
    ShapeFault,
    Values,
    spatial,
    weight_parameters,
)
from neural.layers.parameter import COUNT, REQUIRED, Parameter, one_of, optional, sizes
from neural.plan import Shape, shape_text

FORMAT = Parameter("data_format", optional(one_of("channels_last")), None, "Only channels_last, which is the default")


def window(size: int | None, kernel: int, stride: int, padding: str, dilation: int = 1) -> int | None:
    """Return the number of places of a window along one axis, as Keras counts them."""
    if size is None:
        return None
    if padding in {"same", "causal"}:
        return -(-size // stride)
    return (size - (kernel - 1) * dilation - 1) // stride + 1


def windows(space: Shape, values: Values, kernel: tuple[int, ...]) -> Shape:
    """Return the sizes of the output in space, or refuse a kernel that is larger than the input."""
    dilations = values.get("dilation_rate") or (1,) * len(space)
    strides = values["strides"]
    if max(strides) > 1 and max(dilations) > 1:
        raise ShapeFault("takes no strides above 1 together with a dilation_rate above 1")
    found = tuple(
        window(size, k, stride, values["padding"], dilation)
        for size, k, stride, dilation in zip(space, kernel, strides, dilations, strict=True)
    )
    if any(size is not None and size < 1 for size in found):
        raise ShapeFault(
            f"has a window of {shape_text(kernel)}, larger than its input of {shape_text(space)}: "
            'padding="same", fewer layers before it or a larger input would help'
        )
    return found


def convolve(rank: int, shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the output of a convolution."""
    space, channels = spatial(shapes[0], rank)
    filters, groups = values["filters"], values["groups"]
    if channels % groups or filters % groups:
        raise ShapeFault(f"has {groups} groups, which divide not both {channels} channels and {filters} filters")
    weights = prod(values["kernel_size"]) * (channels // groups) * filters
    bias = filters if values["use_bias"] else 0
    return Inferred((*windows(space, values, values["kernel_size"]), filters), weights + bias)


def transposed_size(
    size: int | None, kernel: int, stride: int, dilation: int, padding: str, extra: int | None
) -> int | None:
    """Return the size along one axis after a transposed convolution, as Keras has it."""
    if size is None:
        return None
    reach = kernel + (kernel - 1) * (dilation - 1)
    if extra is None:
        return size * stride + (max(reach - stride, 0) if padding == "valid" else 0)
    cut = 0 if padding == "valid" else reach // 2
    return (size - 1) * stride + reach - 2 * cut + extra


def transpose(rank: int, shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the output of a transposed convolution."""
    space, channels = spatial(shapes[0], rank)
    filters = values["filters"]
    extra = values["output_padding"] or (None,) * rank
    found = tuple(
        transposed_size(*each[:4], values["padding"], each[4])
        for each in zip(space, values["kernel_size"], values["strides"], values["dilation_rate"], extra, strict=True)
    )
    weights = prod(values["kernel_size"]) * channels * filters
    return Inferred((*found, filters), weights + (filters if values["use_bias"] else 0))


def depthwise(rank: int, shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the output of a convolution of each channel by itself."""
    space, channels = spatial(shapes[0], rank)
    outputs = channels * values["depth_multiplier"]
    weights = prod(values["kernel_size"]) * outputs
    found = windows(space, values, values["kernel_size"])
    return Inferred((*found, outputs), weights + (outputs if values["use_bias"] else 0))


def separate(rank: int, shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the output of a depthwise convolution with a 1x1 convolution after it."""
    space, channels = spatial(shapes[0], rank)
    filters, middle = values["filters"], channels * values["depth_multiplier"]
    weights = prod(values["kernel_size"]) * middle + middle * filters
    found = windows(space, values, values["kernel_size"])
    return Inferred((*found, filters), weights + (filters if values["use_bias"] else 0))


FILTERS = Parameter("filters", COUNT, REQUIRED, "Number of channels of its output")


def _kernel(rank: int) -> Parameter:
    return Parameter("kernel_size", sizes(rank), (3,) * rank, "Size of the window along each axis")


def _strides(rank: int) -> Parameter:
    return Parameter("strides", sizes(rank), (1,) * rank, "Step of the window along each axis")


def _dilation(rank: int) -> Parameter:
    return Parameter("dilation_rate", sizes(rank), (1,) * rank, "Distance between the points of the window")


def _padding(*others: str) -> Parameter:
    return Parameter("padding", one_of("valid", "same", *others), "valid", "What is added around the input")


def _multiplier() -> Parameter:
    return Parameter("depth_multiplier", COUNT, 1, "Outputs for each channel of the input")


def _convolution(rank: int) -> LayerType:
    padding = _padding("causal") if rank == 1 else _padding()
    groups = Parameter("groups", COUNT, 1, "Groups of channels that do not mix")
    rest = (_strides(rank), padding, _dilation(rank), groups, BIASED, FORMAT)
    return LayerType(
        f"Conv{rank}D",
        f"Slides a window over {rank} {'axis' if rank == 1 else 'axes'}, and weighs what it sees.",
        (FILTERS, _kernel(rank), ACTIVATED, *rest, *WEIGHTED),
        partial(convolve, rank),
        positional=3,
        aliases=(f"Convolution{rank}D",),
    )


def _transposed(rank: int) -> LayerType:
    extra = Parameter(
        "output_padding", optional(sizes(rank, least=0)), None, "Added to one side of each axis of its output"
    )
    rest = (_strides(rank), _padding(), extra, _dilation(rank), BIASED, FORMAT)
    return LayerType(
        f"Conv{rank}DTranspose",
        "The transposed convolution, which enlarges its input by its strides.",
        (FILTERS, _kernel(rank), ACTIVATED, *rest, *WEIGHTED),
        partial(transpose, rank),
        positional=3,
    )


def _depthwise(rank: int) -> LayerType:
    rest = (_strides(rank), _padding(), _multiplier(), _dilation(rank), BIASED, FORMAT)
    return LayerType(
        f"DepthwiseConv{rank}D",
        "Convolves each channel by itself.",
        (_kernel(rank), ACTIVATED, *rest, *weight_parameters("depthwise"), *WEIGHTED),
        partial(depthwise, rank),
        positional=1,
    )


def _separable(rank: int) -> LayerType:
    rest = (_strides(rank), _padding(), _multiplier(), _dilation(rank), BIASED, FORMAT)
    weights = (*weight_parameters("depthwise", "pointwise"), *WEIGHTED)
    return LayerType(
        f"SeparableConv{rank}D",
        "Convolves each channel by itself, then mixes the channels at each place.",
        (FILTERS, _kernel(rank), ACTIVATED, *rest, *weights),
        partial(separate, rank),
        positional=3,
    )


MEMBERS = (
    *map(_convolution, (1, 2, 3)),
    *map(_transposed, (1, 2, 3)),
    *map(_depthwise, (1, 2)),
    *map(_separable, (1, 2)),
)
