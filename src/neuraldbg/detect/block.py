"""Steps in a row that detectors pass over together, and the arithmetic of doing so.

A healthy run has nothing to tell in nearly all steps, and to find that out costs numpy's fixed price of many tiny
operations. Sixteen steps at once cost hardly more than one. What is passed over is learnt from as if it had been
observed step by step: in the same order, with the same floating-point operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from neuraldbg.nouns import Layout, Step

    Floats = npt.NDArray[np.float64]

FEW = 32
"""Up to so many places, plain numbers are faster than arrays."""


class Block:
    """Full steps in a row, all applied, of one optimizer and one layout."""

    def __init__(self, steps: Sequence[Step], layout: Layout, tables: Floats) -> None:
        self.steps = steps
        self.layout = layout
        self.tables = tables
        """Shape (steps, sites, STATS): the steps' own tables, stacked."""
        self.stream = steps[0].stream
        self._flat = tables.reshape(len(tables), -1)
        self.norms: Floats | None = None
        """Largest L2 gradient norm of each layer's parameters, shape (steps, layers); None until
        `Readings.norms_of` is asked."""

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, places: npt.NDArray[np.intp], first: int = 0) -> Floats:
        """Read places of the tables read flat, from step ``first`` on: shape (steps - first, places)."""
        flat = self._flat[first:] if first else self._flat
        return flat.take(places, axis=1)


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
