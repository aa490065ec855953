"""SqueezeExcitation: channels that are weighed by what the whole image shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neural.layers.layer_type import Inferred, LayerType, Values, last
from neural.layers.parameter import COUNT, Parameter

if TYPE_CHECKING:
    from neural.plan import Shape


def excite(shapes: tuple[Shape, ...], values: Values) -> Inferred:
    """Return the shape of the input, with two linear layers for its channels."""
    size = last(shapes[0])
    middle = max(1, size // values["ratio"])
    return Inferred(shapes[0], 2 * size * middle + size + middle)


MEMBERS = (
    LayerType(
        "SqueezeExcitation",
        "Weighs each channel by a small network of the means of all channels.",
        (Parameter("ratio", COUNT, 16, "How many times smaller the layer between is", aliases=("reduction",)),),
        excite,
        positional=1,
    ),
)
