"""Layers that disturb a training and do nothing afterwards: Dropout and noise."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from neural.layers.layer_type import Inferred, LayerType, Values, spatial
from neural.layers.parameter import FRACTION, NOT_NEGATIVE, REQUIRED, SHAPE, WHOLE, Parameter, optional

if TYPE_CHECKING:
    from neural.plan import Shape

RATE = Parameter("rate", FRACTION, REQUIRED, "Share of values that are dropped", aliases=("p",))
SEED = Parameter("seed", optional(WHOLE), None, "A seed of its own")


def _channels(rank: int, shapes: tuple[Shape, ...], _: Values) -> Inferred:
    spatial(shapes[0], rank)
    return Inferred(shapes[0])


def _whole_channels(rank: int) -> LayerType:
    name = f"SpatialDropout{rank}D"
    return LayerType(name, "Drops whole channels.", (RATE, SEED), partial(_channels, rank), positional=1)


MEMBERS = (
    LayerType(
        "Dropout",
        "Sets a share of its input to 0 while training, and scales up the rest.",
        (RATE, Parameter("noise_shape", optional(SHAPE), None, "The shape in which values are dropped together"), SEED),
        positional=1,
    ),
    *map(_whole_channels, (1, 2, 3)),
    LayerType(
        "GaussianNoise",
        "Adds normal noise while training.",
        (Parameter("stddev", NOT_NEGATIVE, REQUIRED, "Standard deviation of the noise", aliases=("std",)), SEED),
        positional=1,
    ),
    LayerType("GaussianDropout", "Multiplies by normal noise while training.", (RATE, SEED), positional=1),
    LayerType("AlphaDropout", "Drops values and keeps mean and variance, for selu.", (RATE, SEED), positional=1),
)
