"""The reader of operations between layers: is any of those from one layer's output to the next more than affine?

The layout's edges have one path from layer to layer; this fact has all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.autograd.graph_walk import SHAPE_ONLY
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.capture.loop.moments import Backward
    from neuraldbg.capture.loop.reader_context import Scene

_LAYERS = 512
"""Layers that are listed at most: a model with more has a nonlinearity somewhere."""


class Operations(Reader):
    """Collects the operations that the walks over the loss graphs passed."""

    sampled = frozenset({"backward_begins"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._into: dict[str, set[str]] = {}

    def backward_begins(self, backward: Backward) -> None:
        """Add the operations of this walk."""
        if backward.walk is None:
            return
        fresh = False
        for layer, names in backward.walk.feeding.items():
            if layer == "loss":
                continue
            known = self._into.get(layer)
            if known is None:
                if len(self._into) == _LAYERS:
                    continue
                known = self._into[layer] = set()
            if not names <= known:
                known |= names
                fresh = True
        if fresh:
            into = {layer: sorted(names - SHAPE_ONLY) for layer, names in self._into.items()}
            self.scene.log(FactKey.OPERATIONS, {"into": into})


READER = Operations
