"""The layout as far as it is known: the layers, sites and edges that the parts of the stage have seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.statistics import operation
from neuraldbg.nouns import Layout

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from neuraldbg.capture.layers.hook_manager import HookManager
    from neuraldbg.capture.loop.backward import Losses


class Layouts:
    """Makes the current layout, the same object until a new layer, site or edge was seen."""

    def __init__(self, hooks: HookManager, losses: Losses) -> None:
        self._hooks, self._losses = hooks, losses
        self._layout: Layout | None = None
        self._key: tuple[int, ...] = ()

    def latest(self) -> Layout:
        """Return the newest layout that was made: a light step adds nothing."""
        return self._layout if self._layout is not None else self.now()

    def now(self) -> Layout:
        """Return the current layout."""
        hooks, edges = self._hooks, self._losses.edges
        table, called = hooks.table, hooks.called
        key = (table.version, len(hooks.layers), len(called), len(edges))
        if self._layout is None or key != self._key:
            first = [hooks.layers[path] for path in called]
            rest = [layer for path, layer in hooks.layers.items() if path not in called]
            self._layout = Layout((*first, *rest), tuple(table.sites), tuple(edges.values()), frozenset(called))
            self._key = key
        return self._layout

    def refresh_called(self, raw: npt.NDArray[np.float64]) -> None:
        """Mark layers in a compiled graph as called, by their rows ``raw``, shape (rows, operation.WIDTH)."""
        hooks = self._hooks
        if len(hooks.called) == len(hooks.probes):
            return
        for path, probe in hooks.probes.items():
            if path not in hooks.called and 0 <= probe.row < len(raw) and raw[probe.row, operation.COUNT] > 0:
                hooks.called[path] = None
