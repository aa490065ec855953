"""Consecutive steps that detectors pass over together, and the arithmetic for it.

A healthy run has no event in nearly all steps, and finding that out costs numpy's fixed price of many tiny operations.
Sixteen steps at once cost hardly more than one. A detector learns from steps that it passes over as if it had observed
them one by one: in the same order, with the same floating-point operations.
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
"""Number of places up to which Python's floats are faster than arrays."""


class Block:
    """Consecutive full steps, all applied, of one optimizer and one layout."""

    def __init__(self, steps: Sequence[Step], layout: Layout, tables: Floats) -> None:
        self.steps = steps
        self.layout = layout
        self.tables = tables
        """Tables of the steps, shape (steps, sites, len(STATS))."""
        self.stream = steps[0].stream
        self._flat = tables.reshape(len(tables), -1)
        self.norms: Floats | None = None
        """Largest L2 gradient norm of each layer's parameters, shape (steps, layers). None until `Readings.norms_of` is
        called."""

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, places: npt.NDArray[np.intp], first: int = 0) -> Floats:
        """Return values at indices of the flattened tables, from step ``first`` on, shape (steps - first, places)."""
        flat = self._flat[first:] if first else self._flat
        return flat.take(places, axis=1)


def steps_before(found: npt.NDArray[np.bool_]) -> int:
    """Return the number of steps before the first with a True; ``found`` has the shape (steps, places)."""
    return int(found.any(axis=1).argmax()) if found.any() else len(found)


def follow(level: Floats, values: Floats, memory: float) -> None:
    """Update an exponential moving mean, shape (places,), by ``values`` of shape (steps, places), in place.

    Steps are added in order, so that the result is bitwise the same as for steps that come one by one.
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
