"""A parameter of a watched model, and the facts about it that last from step to step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.capture.guest.weak_references import TensorRef, named

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True, eq=False)
class Watched:
    """A parameter of a watched model, held by a weak reference. Equality is identity: tensors cannot be compared."""

    name: str
    layer: str
    model: str
    weak: TensorRef
    param: int | None
    grad: int | None
    update: int | None
    aliases: tuple[str, ...] = ()
    before: Tensor | None = None
    """A sample of the tensor before the step, None if it can be read in place."""
    touched: tuple[Tensor, Tensor] | None = None
    """The rows of an embedding with a gradient in this step, and their values before it; None for other parameters."""
    rows: bool = False
    """True for an embedding: its gradient has a few rows."""
    norm: bool = False
    """True for the gain or offset of a normalisation layer."""
    whole: bool = False
    """True to read the whole tensor at the next step, because a sample of it did not change."""
    had_grad: bool = False
    trainable: bool = True
    """True if the parameter required a gradient when facts were last read."""
    rate: float | None = None
    """Learning rate when facts were last read, None if no optimizer held the parameter."""
    matrix: bool = False
    """True if the parameter has more than one axis."""
    part: bool = False
    """True if this rank holds a part of the parameter."""

    @property
    def ref(self) -> Tensor:
        """The tensor, ``GONE`` if the program has dropped it."""
        return named(self.weak)

    @property
    def key(self) -> int:
        """The identity of the tensor, valid while it lives."""
        return self.weak.key
