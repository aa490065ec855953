"""A parameter of a watched model, and what is known of it from step to step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.capture.guest.weak_references import TensorRef, named

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True, eq=False)
class Watched:
    """A parameter of a watched model, which lives as long as the program holds it. Two are equal if they are one:
    tensors cannot be compared.
    """

    name: str
    layer: str
    model: str
    weak: TensorRef
    param: int | None
    grad: int | None
    update: int | None
    aliases: tuple[str, ...] = ()
    before: Tensor | None = None
    """Of a tensor that cannot be read as it lies in memory: a sample of what it was before the step."""
    touched: tuple[Tensor, Tensor] | None = None
    """Of an embedding: the rows with a gradient in this step, and what they were before it."""
    rows: bool = False
    """Whether its gradient lives in a few rows: an embedding."""
    norm: bool = False
    """Whether it is gain or offset of a normalisation layer."""
    whole: bool = False
    """Read the whole tensor at the next step: a sample of it did not change."""
    had_grad: bool = False
    trainable: bool = True
    """Whether it required a gradient when facts were last read."""
    rate: float | None = None
    """Its learning rate then, None if no optimizer held it."""
    matrix: bool = False
    """Whether it has more than one axis."""
    part: bool = False
    """Whether this rank holds a part of it."""

    @property
    def ref(self) -> Tensor:
        """The tensor, ``GONE`` if the program has let go of it."""
        return named(self.weak)

    @property
    def key(self) -> int:
        """The identity of the tensor while that lives."""
        return self.weak.key
