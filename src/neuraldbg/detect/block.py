"""Steps in a row that are looked at together, and how far ahead each detector has looked.

A healthy run has nothing to tell in nearly all steps, and to find that out costs numpy's fixed price of many tiny
operations. Sixteen steps at once cost hardly more than one. What is passed over is learnt from as if it had been
observed step by step: in the same order, with the same floating-point operations.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from neuraldbg.detect.detector import Detector
    from neuraldbg.detect.readings import Readings
    from neuraldbg.nouns import Layout, Step

    Floats = npt.NDArray[np.float64]

FEW = 32
"""Up to so many places, plain numbers are faster than arrays."""


class Block:
    """Full steps in a row, all applied, of one optimizer and one layout."""

    def __init__(self, steps: Sequence[Step], layout: Layout, tables: Floats, readings: Readings) -> None:
        self.steps = steps
        self.layout = layout
        self.tables = tables
        """Shape (steps, sites, STATS): the steps' own tables, stacked."""
        self.stream = steps[0].stream
        self._flat = tables.reshape(len(tables), -1)
        self._readings = readings

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, places: npt.NDArray[np.intp], first: int = 0) -> Floats:
        """Read places of the tables read flat, from step ``first`` on: shape (steps - first, places)."""
        flat = self._flat[first:] if first else self._flat
        return flat.take(places, axis=1)

    @cached_property
    def norms(self) -> Floats:
        """Largest L2 gradient norm of each layer's parameters (`GradLayers.norms`), shape (steps, layers)."""
        grads = self._readings.layers
        grads.sync(self.steps[0], self.layout)
        return grads.norms_of(self)


class Ahead:
    """How far each detector has passed over the steps of a block. Detectors need not wait for one another."""

    def __init__(self, block: Block, detectors: Sequence[Detector]) -> None:
        self._block = block
        self._at = 0
        """The step that comes next."""
        self._until = [0] * len(detectors)
        """The first step that a detector has not passed over."""
        self._pass_over: list[Callable[[Block, int], int] | None] = [getattr(d, "pass_over", None) for d in detectors]

    @property
    def next(self) -> Step | None:
        """The step that comes next, None at the end."""
        return self._block.steps[self._at] if self._at < len(self._block) else None

    def due(self, detectors: Sequence[Detector]) -> list[Detector]:
        """The detectors that must observe the next step, the others having passed over it."""
        at = self._at
        self._at = at + 1
        return [d for number, d in enumerate(detectors) if self._until[number] <= at and not self._passes(number, at)]

    def _passes(self, number: int, at: int) -> bool:
        pass_over = self._pass_over[number]
        if pass_over is None:
            return False
        self._pass_over[number] = None  # a detector that has something to tell is left alone to the block's end
        steps = pass_over(self._block, at)
        if steps:
            self._until[number] = at + steps
            self._pass_over[number] = pass_over
        return steps > 0


def steps_before(found: npt.NDArray[np.bool_]) -> int:
    """Return how many steps come before the first in which something was found: shape (steps, places)."""
    return int(found.any(axis=1).argmax()) if found.any() else len(found)


def follow(level: Floats, values: Floats, memory: float) -> None:
    """Move a level, shape (places,), by what each step adds to a moving mean: values of shape (steps, places).

    In the order of the steps, so that not a bit differs from steps that come one by one.
    """
    if len(level) > FEW:
        for value in values:
            level += (value - level) / memory
        return
    for place, course in enumerate(values.T.tolist()):
        at = float(level[place])
        for value in course:
            at += (value - at) / memory
        level[place] = at
