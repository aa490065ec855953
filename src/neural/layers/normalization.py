"""Layers that bring mean and variance of their input to trained values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neural.layers.layer_type import Inferred, LayerType, ShapeFault, Values, last, weight_parameters
from neural.layers.parameter import COUNT, FLAG, FRACTION, POSITIVE, WHOLE, Parameter

if TYPE_CHECKING:
    from neural.plan import Shape

AXIS = Parameter("axis", WHOLE, -1, "The axis of channels, which is the last one")
EPSILON = Parameter("epsilon", POSITIVE, 1e-3, "Added to the variance", aliases=("eps",))
CENTER = Parameter("center", FLAG, True, "Train a mean, beta")
SCALE = Parameter("scale", FLAG, True, "Train a standard deviation, gamma")
WEIGHTS = weight_parameters("beta", "gamma")


def channels(shape: Shape, values: Values) -> int:
    """Return the number of channels, if the axis is the last one."""
    size = last(shape)
    if values["axis"] not in {-1, len(shape)}:
        raise ShapeFault(f"has axis={values['axis']}: only the last axis can be normalised, as channels come last")
    return size


def normalize(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the shape of the input, with a mean and a standard deviation for each channel."""
    size = channels(shapes[0], values)
    return Inferred(shapes[0], size * (values["center"] + values["scale"]))


def normalize_batch(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the same with two moving averages for each channel, which are not trained."""
    return replace(normalize(shapes, values), fixed=2 * channels(shapes[0], values))


def normalize_groups(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the same for groups of channels, of equal size."""
    size, groups = channels(shapes[0], values), values["groups"]
    if groups > 0 and size % groups:
        raise ShapeFault(f"has {groups} groups, which do not divide {size} channels")
    return normalize(shapes, values)


def normalize_instances(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the same for an input with axes of space, over which the mean is taken."""
    if len(shapes[0]) < 2:
        raise ShapeFault("needs an input with at least one axis before the channels")
    return normalize(shapes, values)


SHARED = (AXIS, EPSILON, CENTER, SCALE, *WEIGHTS)
MOMENTUM = Parameter("momentum", FRACTION, 0.99, "Weight of the old value in a moving average (1 - torch's)")

MEMBERS = (
    LayerType(
        "BatchNormalization",
        "Normalises each channel over the batch.",
        (AXIS, MOMENTUM, *SHARED[1:], *weight_parameters("moving_mean", "moving_variance")),
        normalize_batch,
        aliases=("BatchNorm",),
    ),
    LayerType("LayerNormalization", "Normalises the last axis.", SHARED, normalize, aliases=("LayerNorm",)),
    LayerType(
        "GroupNormalization",
        "Normalises groups of channels.",
        (Parameter("groups", COUNT, 32, "Number of groups"), *SHARED),
        normalize_groups,
        positional=1,
        aliases=("GroupNorm",),
    ),
    LayerType(
        "InstanceNormalization",
        "Normalises each channel of each sample.",
        SHARED,
        normalize_instances,
        aliases=("InstanceNorm",),
    ),
)
