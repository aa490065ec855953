"""The rows of a step's table that a detector reads, in data-flow order; computed once for each layout."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns import STATS, column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.nouns import Layout, Site, Step

    Rows = npt.NDArray[np.intp]

TOTAL, COUNT, NONFINITE, STD = column("total"), column("count"), column("nonfinite"), column("std")
RMS, MIN, MAX, ZEROS = column("rms"), column("min"), column("max"), column("zeros")
UNITS, DEAD, SATURATED = column("units"), column("dead"), column("saturated")
DEAD_ROWS, DEAD_SINCE = column("dead_rows"), column("dead_since")

NOT_MATRICES = ("Norm", "PReLU", "LayerScale")
"""Parts of the type names of layers whose ``weight`` is a gain per channel, not a matrix."""
FAR = 1 << 30
"""Depth of the loss and the operands of its operations, behind all layers."""


def flow(layout: Layout) -> dict[str, tuple[int, int]]:
    """Return the position of each layer in data-flow order, leaves before the containers that pass their output on."""
    depth = layout.depth
    found = {layer.path: (depth[layer.path], 0) for layer in layout.layers}
    for layer in layout.layers:
        if layer.path not in layout.called:
            continue
        parts = layer.path.split(".") if layer.path else []
        for cut in range(len(parts)):
            above = ".".join(parts[:cut])
            if above in found:
                known = found[above]
                found[above] = (max(depth[layer.path], known[0] if known[1] else -1), len(parts) - cut)
    return {path: (at, up) for path, (at, up) in found.items()}


def depth_of(layout: Layout, site: Site) -> int:
    """Return the position of a site in data-flow order: inputs before all layers, the loss behind them."""
    if site.kind == "input":
        return -1
    return layout.depth.get(site.module, FAR)


def is_matrix(layout: Layout, site: Site) -> bool:
    """Return True if a parameter is a weight matrix (or kernel), as opposed to a bias or the gain of a norm."""
    layer = layout.by_path.get(site.module)
    if layer is not None and any(part in layer.type for part in NOT_MATRICES):
        return False
    return "weight" in site.name or site.name in ("kernel", "original1")


def is_embedding(layout: Layout, site: Site) -> bool:
    """Return True if a parameter is a lookup table, of which one step changes only some rows."""
    layer = layout.by_path.get(site.module)
    return layer is not None and "Embedding" in layer.type


def sorted_rows(layout: Layout, rows: Iterable[int]) -> list[int]:
    """Sort rows in data-flow order, those of one layer together."""
    sites = layout.sites
    return sorted(rows, key=lambda row: (depth_of(layout, sites[row]), sites[row].module, row))


def flat(rows: Rows, stat: int) -> Rows:
    """Return the indices of one statistic of some rows in the flattened table: ``table.take`` is the fastest access."""
    return np.asarray(rows * len(STATS) + stat, np.intp)


class Synced(abc.ABC):
    """The base of classes with index arrays for a layout: ``build`` is called when the layout or the table grows."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._rows = -1

    def sync(self, step: Step, layout: Layout) -> None:
        """Update the index arrays for a step's table."""
        rows = min(step.table.shape[0], len(layout.sites))
        if layout is not self._layout or rows != self._rows:
            self._layout, self._rows = layout, rows
            self.build(layout, rows)

    @abc.abstractmethod
    def build(self, layout: Layout, rows: int) -> None:
        """Compute the index arrays over the first ``rows`` sites."""


class GradLayers(Synced):
    """The parameter gradients grouped by layer: one number per layer, in data-flow order.

    ``matrices`` leaves out biases, gains and lookup tables. A layer counts by its largest parameter, so that a
    parameter without gradient (the recurrent weight of a sequence of length 1) does not make its layer bad.
    """

    def __init__(self, *, matrices: bool) -> None:
        super().__init__()
        self._matrices = matrices
        self.layers: tuple[str, ...] = ()
        self.rows: Rows = np.zeros(0, np.intp)
        self.starts: Rows = np.zeros(0, np.intp)
        self._rms = self._total = self.rows
        self._step: Step | None = None
        self._norms: npt.NDArray[np.float64] = np.zeros(0)
        self._labels: tuple[str, ...] = ()

    def build(self, layout: Layout, rows: int) -> None:
        """Group the gradient rows by layer."""
        sites = layout.sites
        picked = [row for row in layout.rows("param_grad") if row < rows]
        if self._matrices:
            picked = [r for r in picked if is_matrix(layout, sites[r]) and not is_embedding(layout, sites[r])]
        picked = sorted_rows(layout, picked)
        modules = [sites[row].module for row in picked]
        starts = [i for i, module in enumerate(modules) if i == 0 or module != modules[i - 1]]
        self.rows = np.array(picked, np.intp)
        self.starts = np.array(starts, np.intp)
        self.layers = tuple(modules[i] for i in starts)
        self._rms, self._total = flat(self.rows, RMS), flat(self.rows, TOTAL)
        self._labels = tuple(sites[row].label for row in picked)
        self._step = None

    def synced(
        self, step: Step, layout: Layout, known: tuple[str, ...], grow: Callable[[tuple[str, ...]], None]
    ) -> GradLayers:
        """Update the layers, and call ``grow`` with them if they are not the ``known`` ones that a detector keeps state
        for.
        """
        self.sync(step, layout)
        if self.layers is not known:
            grow(self.layers)
        return self

    def rms(self, step: Step) -> npt.NDArray[np.float64]:
        """Return the largest RMS gradient of each layer's parameters, shape (layers,); NaN if none was read."""
        return self._largest(step.table.take(self._rms))

    def norms(self, step: Step) -> npt.NDArray[np.float64]:
        """Return the largest L2 gradient norm of each layer's parameters, shape (layers,); NaN if none was read.

        Do not write to the array: it is returned again for the same step.
        """
        if step is not self._step:
            self._step = step
            self._norms = self._largest(step.table.take(self._rms) * np.sqrt(step.table.take(self._total)))
        return self._norms

    def rms_of(self, block: Block, first: int) -> npt.NDArray[np.float64]:
        """Return `rms` for the steps of a block from ``first`` on, shape (steps - first, layers)."""
        return self._largest(block.take(self._rms, first))

    def norms_of(self, block: Block) -> npt.NDArray[np.float64]:
        """Return `norms` for the steps of a block, shape (steps, layers)."""
        return self._largest(block.take(self._rms) * np.sqrt(block.take(self._total)))

    def labels(self, i: int) -> tuple[str, ...]:
        """Return the names of the parameters of a layer whose gradients are read: ``fc1.weight``."""
        return self._labels[self.starts[i] : self.starts[i + 1] if i + 1 < len(self.starts) else None]

    def sampled(self, step: Step) -> npt.NDArray[np.bool_]:
        """Return a mask of the layers with a gradient of which only a sample was read, shape (layers,)."""
        some = step.table.take(self._rms + (COUNT - RMS)) < step.table.take(self._total)
        return np.logical_or.reduceat(some, self.starts) if len(self.starts) else np.zeros(0, np.bool_)

    def nonfinite(self, step: Step) -> npt.NDArray[np.bool_]:
        """Return a mask of the layers whose gradients hold NaN or Inf, shape (layers,)."""
        return self._largest(step.table.take(self._rms + (NONFINITE - RMS))) > 0

    def _largest(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.fmax.reduceat(values, self.starts, axis=-1) if len(self.starts) else np.zeros((*values.shape[:-1], 0))
