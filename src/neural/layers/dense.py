"""Layers that connect every feature of the last axis with every unit: Dense, Output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neural.layers.layer_type import ACTIVATED, BIASED, WEIGHTED, Inferred, LayerType, Values, last
from neural.layers.parameter import COUNT, REQUIRED, Parameter

if TYPE_CHECKING:
    from neural.plan import Shape


def infer(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the output of a matrix on the last axis, whatever axes stand before it."""
    units = values["units"]
    return Inferred((*shapes[0][:-1], units), last(shapes[0]) * units + (units if values["use_bias"] else 0))


DENSE = LayerType(
    "Dense",
    "Multiplies the last axis by a matrix, adds a bias, and applies an activation.",
    (Parameter("units", COUNT, REQUIRED, "Size of the last axis of its output"), ACTIVATED, BIASED, *WEIGHTED),
    infer,
    positional=2,
)

MEMBERS = (
    DENSE,
    replace(
        DENSE,
        name="Output",
        help="A Dense layer that ends a network; its activation is softmax if none is given.",
        parameters=tuple(replace(each, default="softmax") if each is ACTIVATED else each for each in DENSE.parameters),
    ),
)
