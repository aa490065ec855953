"""The reader of the indices of dead units: which channels or features of a layer were never positive.

That a unit is dead is found where its activity is followed anyway (``statistics/unit_activity.py``); here the indices
are written as stretches, in the steps in which facts are read and at the end. Nothing of the program is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.capture.readers.reader import Reader
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.capture.loop.reader_context import Scene

_LAYERS, _STRETCHES = 128, 32
"""Layers, and stretches of indices of a layer, that are listed at most: about 50 kB."""


class DeadUnitIndices(Reader):
    """Writes which units are dead, when that changed."""

    sampled = frozenset({"step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._told = False
        """True if there were dead units before: that there are none any more is news then."""

    def step_closes(self) -> None:
        """Write them in a step in which facts are read."""
        self.summarise()

    def summarise(self) -> None:
        """Write the dead units as of the newest reading of each layer, once there are any."""
        table = self.scene.hooks.table
        found = [(table.sites[row], dead) for row, dead in table.units.dead()]
        if not found and not self._told:
            return
        self._told = True
        ordered = sorted(found, key=lambda one: -float(one[1].mean()))[:_LAYERS]
        kept = {id(dead) for _, dead in ordered}
        layers = [
            {
                "layer": site.module,
                "call": site.call,
                "name": site.name,
                "units": len(dead),
                "dead": int(dead.sum()),
                "ranges": _stretches(dead),
            }
            for site, dead in found
            if id(dead) in kept
        ]
        value: dict[str, Any] = {"layers": layers, "left_out": len(found) - len(layers)}
        self.scene.log(FactKey.DEAD_INDICES, value)


def _stretches(dead: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Return first and last index of the first stretches of True."""
    ends = np.flatnonzero(np.diff(dead, prepend=False, append=False))
    found: list[list[int]] = np.stack([ends[::2], ends[1::2] - 1], axis=1)[:_STRETCHES].tolist()
    return found


READER = DeadUnitIndices
