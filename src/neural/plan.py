"""The result of a check: a `Plan` holds all that is needed to build and train a network, as plain values.

Shapes are without the batch and channels last, as in Keras; None is a size that only the data tell. A layer's name is
its type with its place among the layers around it: `Dense_1`, `Conv2D_2`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from neural.errors import Span

Shape: TypeAlias = tuple[int | None, ...]

SEARCHES = ("random", "bayesian", "grid")
"""The ways to search for values."""


def shape_text(shape: Shape) -> str:
    """Return a shape as it is written in a file."""
    inner = ", ".join("None" if size is None else str(size) for size in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


@dataclass(frozen=True)
class InputPlan:
    """Hold one input of a network, with its shape."""

    name: str
    """Its name in the file, `input` if it has none."""
    shape: Shape
    ids: bool
    """True if an Embedding reads it: its values are whole numbers."""


@dataclass(frozen=True)
class LayerPlan:
    """Hold one layer with all of its parameters, defaults included."""

    name: str
    type: str
    """The canonical name of the type, as in Keras."""
    parameters: Mapping[str, Any]
    """By their names in Keras, and what the check adds:

    - `projection` of an Add without operands: the channels to which a 1x1 convolution without a bias brings its second
      input; None without one;
    - `projection` of a ResidualConnection: the name of the child on the way of its input; None without one;
    - `gate` of a Multiply that was put in: its second input has channels and no axes of space.
    """
    inputs: tuple[str, ...]
    """The names of the layers or inputs that it reads. Within a block, `""` is the input of the block."""
    shape: Shape
    trainable: int
    """Number of trained parameters, those of its children included."""
    fixed: int
    """Number of parameters that no gradient changes, such as moving averages."""
    span: Span
    """Its text in the file; of a layer of a macro, the text in the macro."""
    children: tuple[LayerPlan, ...] = ()
    """The layers of its block, or the one that it wraps."""
    device: str | None = None
    """The device after `@`, None without one."""

    @property
    def parameter_count(self) -> int:
        return self.trainable + self.fixed


@dataclass(frozen=True)
class PartPlan:
    """Hold the loss, the optimizer or the schedule: a name with its parameters, defaults included."""

    type: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Note:
    """Say what was decided where the file leaves it open."""

    line: int
    text: str
    approximated: bool = False
    """True if the file says something else, or nothing that could be built as it is written."""


@dataclass(frozen=True)
class Search:
    """Hold one value that a search may choose."""

    kind: str
    """`choice`, `range` or `log_range`."""
    values: tuple[Any, ...]
    """All values of a choice; first, last and step (None without one) of a range."""
    taken: Any
    """The value that this plan has."""
    span: Span


@dataclass(frozen=True)
class Plan:
    """Hold all that is known of a network that was checked."""

    name: str
    file: str
    inputs: tuple[InputPlan, ...]
    layers: tuple[LayerPlan, ...]
    """In the order in which they are called."""
    output: str
    """The name of the layer whose output is that of the network."""
    loss: PartPlan
    optimizer: PartPlan
    schedule: PartPlan | None
    """How the learning rate changes, None if it does not."""
    metrics: tuple[str, ...]
    training: Mapping[str, Any]
    """`epochs`, `batch_size`, `validation_split` and what else `train` says."""
    device: str | None
    """The device of `execution`, None without one."""
    searches: tuple[Search, ...]
    notes: tuple[Note, ...]

    @property
    def parameter_count(self) -> int:
        return sum(layer.parameter_count for layer in self.layers)

    @property
    def trainable(self) -> int:
        return sum(layer.trainable for layer in self.layers)

    def walk(self) -> Iterator[LayerPlan]:
        """Return every layer, each before its children."""
        waiting = list(reversed(self.layers))
        while waiting:
            layer = waiting.pop()
            yield layer
            waiting.extend(reversed(layer.children))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as values that JSON can hold."""
        return asdict(self)
