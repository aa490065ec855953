"""Pooling: largest or mean value of a window, of the whole input, or of a given number of windows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from neural.layers.convolution import FORMAT, windows
from neural.layers.layer_type import Inferred, LayerType, Values, spatial
from neural.layers.parameter import FLAG, REQUIRED, Parameter, one_of, optional, sizes

if TYPE_CHECKING:
    from neural.plan import Shape


def pool(rank: int, shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the output of a window whose strides are its size if none are given."""
    space, channels = spatial(shapes[0], rank)
    strides = values["strides"] or values["pool_size"]
    return Inferred((*windows(space, {**values, "strides": strides}, values["pool_size"]), channels))


def pool_all(rank: int, shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return one value for each channel."""
    _, channels = spatial(shapes[0], rank)
    return Inferred((*(1,) * rank, channels) if values["keepdims"] else (channels,))


def pool_to(rank: int, shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return an output of the size that was asked for."""
    _, channels = spatial(shapes[0], rank)
    return Inferred((*values["output_size"], channels))


def _window(word: str, verb: str, rank: int) -> LayerType:
    return LayerType(
        f"{word}Pooling{rank}D",
        f"{verb} each window.",
        (
            Parameter("pool_size", sizes(rank), (2,) * rank, "Size of the window along each axis"),
            Parameter("strides", optional(sizes(rank)), None, "Step of the window, its size if it is None"),
            Parameter("padding", one_of("valid", "same"), "valid", "What is added around the input"),
            FORMAT,
        ),
        partial(pool, rank),
        positional=2,
        aliases=(f"{word}Pool{rank}D", f"{word[:3]}Pool{rank}D") if word == "Average" else (f"{word}Pool{rank}D",),
    )


def _global(word: str, verb: str, rank: int) -> LayerType:
    return LayerType(
        f"Global{word}Pooling{rank}D",
        f"{verb} the whole of each channel.",
        (Parameter("keepdims", FLAG, False, "Keep the axes of space, each with the size 1"), FORMAT),
        partial(pool_all, rank),
        aliases=(f"Global{word}Pool{rank}D",),
    )


def _adaptive(word: str, verb: str, rank: int) -> LayerType:
    return LayerType(
        f"Adaptive{word}Pooling{rank}D",
        f"{verb} as many windows as its output has places.",
        (Parameter("output_size", sizes(rank), REQUIRED, "Size of its output along each axis"), FORMAT),
        partial(pool_to, rank),
        positional=1,
    )


KINDS = (("Max", "Takes the largest value of"), ("Average", "Takes the mean of"))
MEMBERS = tuple(make(*kind, rank) for make in (_window, _global, _adaptive) for kind in KINDS for rank in (1, 2, 3))
