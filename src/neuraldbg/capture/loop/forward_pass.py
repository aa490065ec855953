"""A watched model, and one forward pass through it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from torch import nn

from neuraldbg.capture.guest.weak_references import Modules

_EMPTY = nn.Module()


class Model:
    """A watched model, held by a weak reference, and its modes over the run."""

    def __init__(self, name: str, prefix: str, root: nn.Module, mode_layers: dict[str, nn.Module]) -> None:
        self.name, self.prefix = name, prefix
        self._root = weakref.ref(root)
        self.mode_layers = Modules()
        self.follow(mode_layers)
        self.trained_in_train_mode = self.trained_in_eval_mode = False
        self.entry: weakref.ref[nn.Module] | None = None
        """Weak reference to the part that the program calls first: usually the root. None before the first call."""
        self.left = False
        """True if the model's parameters are not read, because a thread trains it that is no longer followed."""
        self.thread = 0
        """The followed thread that has called the model last with gradients, 0 if none has."""

    @property
    def root(self) -> nn.Module:
        """The module that holds all of it, an empty module if the program has dropped that."""
        root = self._root()
        return root if root is not None else _EMPTY

    @property
    def gone(self) -> bool:
        """True if the program has dropped its root."""
        return self._root() is None

    def front(self, called: nn.Module) -> nn.Module:
        """Return the root, or ``called`` for a model whose root is gone."""
        root = self._root()
        return root if root is not None else called

    def follow(self, mode_layers: dict[str, nn.Module]) -> None:
        """Replace the layers that behave differently in evaluation."""
        self.mode_layers = Modules()
        for path, layer in mode_layers.items():
            self.mode_layers[path] = layer

    @property
    def trained(self) -> bool:
        """True if a backward pass has ever reached it."""
        return self.trained_in_train_mode or self.trained_in_eval_mode


@dataclass(eq=False)
class Pass:
    """One forward pass with gradients through a watched model."""

    model: Model
    training: bool
    eval_layers: int
    first: bool
    """True if the pass entered the model at its front: a program may call the parts of a model one after the other."""
    batch: int = 0
    modes: dict[str, Any] | None = None
    """The MODES fact as of the pass, None if facts are not read: an evaluation before the step's end may change it."""
    committed: bool = False
    thread: int = 0
    """The thread that ran the pass."""
