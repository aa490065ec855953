"""A watched model, and one pass through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import weakref

    from torch import nn


@dataclass(eq=False)
class Model:
    """A watched model."""

    name: str
    prefix: str
    root: nn.Module
    mode_layers: dict[str, nn.Module]
    trained_in_train_mode: bool = False
    trained_in_eval_mode: bool = False
    entry: weakref.ref[nn.Module] | None = None
    """The part that the program calls first: the root, unless it never calls that."""
    thread: int = 0
    """The thread that has called it last with gradients and was followed, 0 if none has."""

    @property
    def trained(self) -> bool:
        """Whether a backward pass has ever reached it."""
        return self.trained_in_train_mode or self.trained_in_eval_mode


@dataclass(eq=False)
class Pass:
    """One forward pass with gradients."""

    model: Model
    training: bool
    eval_layers: int
    first: bool
    """Whether it entered the model at its front: a program may call the parts of a model one after the other."""
    batch: int = 0
    modes: dict[str, Any] | None = None
    """The MODES fact as of the pass, where facts are read: by the step's end an evaluation may have changed them."""
    committed: bool = False
    thread: int = 0
    """The thread that has made it."""
