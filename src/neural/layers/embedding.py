"""Layers for sequences of ids: Embedding, PositionalEncoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neural.layers.layer_type import Inferred, LayerType, ShapeFault, Values, sequence, weight_parameters
from neural.layers.parameter import ANYTHING, COUNT, FLAG, FRACTION, REQUIRED, Parameter

if TYPE_CHECKING:
    from neural.plan import Shape


def embed(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return a vector for each id."""
    return Inferred((*shapes[0], values["output_dim"]), values["input_dim"] * values["output_dim"])


def encode(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the shape of the input, to which sines and cosines are added."""
    sequence(shapes[0])
    steps, most = shapes[0][0], values["max_len"]
    if steps is not None and steps > most:
        raise ShapeFault(f"has max_len={most}, and its input has {steps} steps")
    return Inferred(shapes[0])


MEMBERS = (
    LayerType(
        "Embedding",
        "Looks up a trained vector for each id.",
        (
            Parameter("input_dim", COUNT, REQUIRED, "Number of different ids"),
            Parameter("output_dim", COUNT, REQUIRED, "Size of each vector"),
            Parameter("mask_zero", FLAG, False, "The id 0 marks an empty place"),
            Parameter("input_length", ANYTHING, None, "Not used: the section `input` has the shape"),
            Parameter("weights", ANYTHING, None, "Not used: training begins at random"),
            *weight_parameters("embeddings"),
        ),
        embed,
        positional=2,
    ),
    LayerType(
        "PositionalEncoding",
        "Adds sines and cosines of the position to each step.",
        (
            Parameter("max_len", COUNT, 5000, "The longest sequence", aliases=("max_length",)),
            Parameter("dropout", FRACTION, 0.0, "Share of values that are dropped afterwards"),
            Parameter("d_model", ANYTHING, None, "Not used: the input has the size", aliases=("embed_dim",)),
        ),
        encode,
    ),
)
