"""The contract of a layer's code: a `Use` of a layer enters, a `LayerCode` leaves.

A file of this folder that holds a family has a tuple `MEMBERS` of `LayerWriter`. A layer that cannot be written raises
`NotWritten`, whose message becomes a problem at the layer's place in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from neural.layer_writing import LayerUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from neural.plan import Shape

Layout: TypeAlias = Literal["first", "last", "any"]
"""The place of the channels that a layer needs: torch's convolutions have them first, the language has them last."""


@dataclass(frozen=True)
class Wire:
    """Hold a tensor of the generated `forward`."""

    text: str
    """The expression that gives it: a variable, with a change of layout if a layer needs one."""
    shape: Shape
    """Its shape as in the plan: without the batch, the channels last."""
    first: bool = False
    """True if its channels are first."""
    mask: str | None = None
    """The variable that is true where a step is no empty place, None if all steps count."""
    places: str | None = None
    """The same variable where the ids are known, even if nothing says that empty places are left out."""

    @property
    def channel_axis(self) -> int:
        return 1 if self.first and len(self.shape) > 1 else -1

    @property
    def space_axes(self) -> tuple[int, ...]:
        """Return the axes of space in the tensor, in which the batch is axis 0."""
        start = 2 if self.channel_axis == 1 else 1
        return tuple(range(start, start + len(self.shape) - 1))


@dataclass(frozen=True)
class Use(LayerUse[Wire]):
    """Hold one layer with the tensors that it reads, which have the layout that its writer needs."""

    @property
    def me(self) -> str:
        """Return the expression of its module."""
        return f"self.{self.layer.name}"


@dataclass(frozen=True)
class LayerCode:
    """Hold the code of one layer."""

    call: str
    """The expression in `forward`."""
    construct: str = ""
    """The expression in `__init__` that makes its module, "" if it has none."""
    setup: tuple[str, ...] = ()
    """Statements after it."""
    weights: tuple[str, ...] = ()
    """Statements that give it first weights, after `initialize` gave it the usual ones."""
    helpers: tuple[str, ...] = ()
    """The names of `neural.pytorch.modules` that it uses."""
    comment: str = ""
    """What a reader of the line in `forward` may want to know."""


@dataclass(frozen=True)
class LayerWriter:
    """Write the code of one type of layer."""

    type: str
    """Its canonical name, as in `neural.layers`."""
    write: Callable[[Use], LayerCode]
    layout: Layout = "any"
    passes_mask: bool = False
    """True if an empty place of its input is an empty place of its output."""


def arguments(*positional: Any, **named: Any) -> str:
    """Return arguments as they stand in a call; a named one that is None is left out."""
    words = [str(value) for value in positional]
    words += [f"{name}={value}" for name, value in named.items() if value is not None]
    return ", ".join(words)


def sizes_text(sizes: tuple[int, ...]) -> str:
    """Return one number if all sizes are the same, else a tuple."""
    if len(set(sizes)) == 1:
        return str(sizes[0])
    return str(tuple(sizes))


def unless(value: Any, default: Any) -> Any:
    """Return the value as an argument, None if it is the default of torch."""
    return None if value == default else repr(value)
