"""The contract of a layer: its names, its parameters, and a pure function of shapes.

A file of this folder holds one family, as a tuple `MEMBERS` of `LayerType`. What it cannot take it refuses by raising
`ShapeFault`, whose message ends the sentence "Conv2D ...".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from neural.layers.parameter import ACTIVATION, ANYTHING, FLAG, TEXT, Parameter, optional
from neural.plan import Shape, shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Values: TypeAlias = "Mapping[str, Any]"

AXES = {
    1: "(length, channels)",
    2: "(height, width, channels)",
    3: "(depth, height, width, channels)",
}
"""The axes of an input with 1, 2 or 3 dimensions of space."""


class ShapeFault(ValueError):
    """Raised if a layer cannot take the shape of its input."""


@dataclass(frozen=True)
class Inferred:
    """Hold what a layer makes of its input."""

    shape: Shape
    trainable: int = 0
    """Number of trained parameters."""
    fixed: int = 0
    """Number of parameters that no gradient changes."""


@dataclass(frozen=True)
class LayerType:
    """Describe one type of layer, as Keras has it."""

    name: str
    """Its name in Keras, or in the language if Keras has none."""
    help: str
    """One sentence."""
    parameters: tuple[Parameter, ...] = ()
    infer: Callable[[tuple[Shape, ...], Values], Inferred] = lambda shapes, _: Inferred(shapes[0])
    positional: int = 0
    """The first so many parameters may be given without a name."""
    aliases: tuple[str, ...] = ()
    merges: bool = False
    """True if it reads several inputs."""
    wraps: bool = False
    """True if its first argument is a layer."""
    unbuildable: str = ""
    """Why no model can be made with it, "" if one can."""
    approximated: str = ""
    """What is built where the language leaves its meaning open, "" if it does not."""


COMMON = (
    Parameter("name", optional(TEXT), None, "A name by which other layers refer to it"),
    Parameter("trainable", FLAG, True, "False keeps its parameters as they are"),
    Parameter("dtype", ANYTHING, None, "Not used: all parameters are of 32 bits"),
    Parameter("input_shape", ANYTHING, None, "Not used: the section `input` has the shape"),
    Parameter("batch_input_shape", ANYTHING, None, "Not used: the section `input` has the shape"),
)
"""Parameters of every layer."""

ACTIVATED = Parameter("activation", ACTIVATION, "linear", "The activation of its output")
BIASED = Parameter("use_bias", FLAG, True, "Add a bias")


INITIALIZERS = {
    "beta": "zeros",
    "bias": "zeros",
    "embeddings": "uniform",
    "gamma": "ones",
    "moving_mean": "zeros",
    "moving_variance": "ones",
    "recurrent": "orthogonal",
}
"""Keras's initializers of weights; `glorot_uniform` for all others."""


def weight_parameters(*names: str) -> tuple[Parameter, ...]:
    """Return initializer, regularizer and constraint of some weights, such as `kernel` and `bias`."""
    return tuple(
        Parameter(f"{name}_{what}", ANYTHING, default, f"The {what} of its {name}")
        for name in names
        for what, default in (
            ("initializer", INITIALIZERS.get(name, "glorot_uniform")),
            ("regularizer", None),
            ("constraint", None),
        )
    )


WEIGHTED = (
    *weight_parameters("kernel", "bias"),
    Parameter("activity_regularizer", ANYTHING, None, "The regularizer of its output"),
)
"""Parameters of every layer with a kernel."""


def last(shape: Shape, who: str = "") -> int:
    """Return the size of the last axis, of which weights depend."""
    if not shape:
        raise ShapeFault("needs an input of at least one axis, and gets a single number")
    if shape[-1] is None:
        raise ShapeFault(f"needs to know the last axis of its input, and gets {shape_text(shape)}")
    del who
    return shape[-1]


def spatial(shape: Shape, rank: int) -> tuple[Shape, int]:
    """Return the sizes in space and the number of channels of an input with `rank` dimensions of space."""
    if len(shape) != rank + 1:
        raise ShapeFault(f"needs an input of {AXES[rank]}, and gets {shape_text(shape)}")
    return shape[:-1], last(shape)


def sequence(shape: Shape) -> int:
    """Return the number of features of an input of (steps, features)."""
    if len(shape) != 2:
        raise ShapeFault(f"needs an input of (steps, features), and gets {shape_text(shape)}")
    return last(shape)


def volume(shape: Shape) -> int | None:
    """Return the number of elements, None if it depends on the data."""
    known = [size for size in shape if size is not None]
    return prod(known) if len(known) == len(shape) else None
