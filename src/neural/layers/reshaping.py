"""Layers that arrange their input otherwise: Flatten, Reshape, Permute, RepeatVector, UpSampling2D, ZeroPadding2D."""

from __future__ import annotations

from math import prod

from neural.layers.convolution import FORMAT
from neural.layers.layer_type import Inferred, LayerType, ShapeFault, Values, spatial, volume
from neural.layers.parameter import COUNT, REQUIRED, SHAPE, Parameter, one_of, sizes
from neural.plan import Shape, shape_text


def flatten(shapes: tuple[Shape, ...], _: Values) -> Inferred:
    """Return one axis with all elements."""
    return Inferred((volume(shapes[0]),))


def reshape(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the target; one -1 in it is what is left."""
    target, elements = values["target_shape"], volume(shapes[0])
    if any(size == 0 or size < -1 for size in target) or target.count(-1) > 1:
        raise ShapeFault(f"has the target_shape {shape_text(target)}: sizes are above 0, and one of them may be -1")
    known = prod(size for size in target if size != -1)
    if elements is None:
        return Inferred(tuple(None if size == -1 else size for size in target))
    if elements % known or (-1 not in target and elements != known):
        raise ShapeFault(f"cannot make {shape_text(target)} of {elements} elements of {shape_text(shapes[0])}")
    return Inferred(tuple(elements // known if size == -1 else size for size in target))


def permute(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the axes in another order, counted from 1."""
    order = values["dims"]
    if sorted(order) != list(range(1, len(shapes[0]) + 1)):
        raise ShapeFault(f"has dims {shape_text(order)}, which are not the axes 1 to {len(shapes[0])} in some order")
    return Inferred(tuple(shapes[0][axis - 1] for axis in order))


def repeat(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the input as many times as asked, along a new axis."""
    if len(shapes[0]) != 1:
        raise ShapeFault(f"needs an input of (features,), and gets {shape_text(shapes[0])}")
    return Inferred((values["n"], *shapes[0]))


def enlarge(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return each place several times."""
    space, channels = spatial(shapes[0], 2)
    grown = (None if size is None else size * by for size, by in zip(space, values["size"], strict=True))
    return Inferred((*grown, channels))


def pad(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the input with zeros on both sides of each axis of space."""
    space, channels = spatial(shapes[0], 2)
    grown = (None if size is None else size + 2 * by for size, by in zip(space, values["padding"], strict=True))
    return Inferred((*grown, channels))


MEMBERS = (
    LayerType("Flatten", "Puts all elements into one axis.", (FORMAT,), flatten),
    LayerType(
        "Reshape",
        "Gives its input another shape.",
        (Parameter("target_shape", SHAPE, REQUIRED, "The shape without the batch; -1 is what is left"),),
        reshape,
        positional=1,
    ),
    LayerType(
        "Permute",
        "Orders the axes otherwise.",
        (Parameter("dims", SHAPE, REQUIRED, "The axes, counted from 1, in their new order"),),
        permute,
        positional=1,
    ),
    LayerType(
        "RepeatVector",
        "Repeats a vector along a new first axis.",
        (Parameter("n", COUNT, REQUIRED, "How many times"),),
        repeat,
        positional=1,
    ),
    LayerType(
        "UpSampling2D",
        "Repeats or interpolates rows and columns.",
        (
            Parameter("size", sizes(2), (2, 2), "Factor along each axis"),
            Parameter("interpolation", one_of("nearest", "bilinear"), "nearest", "How values between are found"),
            FORMAT,
        ),
        enlarge,
        positional=1,
    ),
    LayerType(
        "ZeroPadding2D",
        "Adds zeros around an image.",
        (Parameter("padding", sizes(2), (1, 1), "Rows and columns that are added on each side"), FORMAT),
        pad,
        positional=1,
    ),
)
