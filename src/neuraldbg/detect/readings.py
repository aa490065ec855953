"""The values of a step that several detectors need, computed once for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.detect.layer_rows import RMS, GradLayers, Synced, flat, is_matrix, sorted_rows
from neuraldbg.detect.progress import Progresses

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.nouns import Layout, Step

    Rows = npt.NDArray[np.intp]
    Floats = npt.NDArray[np.float64]


class Parameters(Synced):
    """The rows of each parameter with an update site, in data-flow order: of kind update, param and param_grad.

    A parameter without a param or param_grad site has row -1 there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        """Counter that grows when the rows change."""
        self.places: tuple[tuple[str, str], ...] = ()
        """Layer path and site label of each parameter."""
        self.update: Rows = np.zeros(0, np.intp)
        """Row of each parameter's update."""
        self.update_rms: Rows = np.zeros(0, np.intp)
        """Index of each update's rms in the flattened table."""
        self.param: Rows = np.zeros(0, np.intp)
        """Row of each parameter itself, -1 if it has none."""
        self.grad: Rows = np.zeros(0, np.intp)
        """Row of each parameter's gradient, -1 if it has none."""
        self.matrix: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        """True for weight matrices."""

    def build(self, layout: Layout, rows: int) -> None:
        """Match the rows by layer and parameter name."""
        sites = layout.sites
        of = {
            (s.kind, s.module, s.name): row for row, s in enumerate(sites[:rows]) if s.kind in ("param", "param_grad")
        }
        update = sorted_rows(layout, [row for row in layout.rows("update") if row < rows])
        self.update = np.array(update, np.intp)
        self.update_rms = flat(self.update, RMS)
        self.param = np.array([of.get(("param", sites[r].module, sites[r].name), -1) for r in update], np.intp)
        self.grad = np.array([of.get(("param_grad", sites[r].module, sites[r].name), -1) for r in update], np.intp)
        self.matrix = np.array([is_matrix(layout, sites[row]) for row in update], np.bool_)
        self.places = tuple((sites[row].module, f"update/{sites[row].label}") for row in update)
        self.version += 1


class Readings:
    """The progress of the losses, gradients by layer, parameters with their updates, and counts of light steps.

    A detector has its own object until `Watch` gives all of them the same one.
    """

    __slots__ = ("_missed", "layers", "matrices", "parameters", "progress")

    def __init__(self) -> None:
        self.progress = Progresses()
        self.layers = GradLayers(matrices=False)
        self.matrices = GradLayers(matrices=True)
        self.parameters = Parameters()
        self._missed: dict[int, int] = {}

    def light(self, step: Step) -> None:
        """Count a light step, and add its loss."""
        self._missed[step.stream] = self._missed.get(step.stream, 0) + 1
        self.progress.observe(step)

    def missed(self, step: Step) -> int:
        """Return the number of light steps of this step's optimizer so far, for `Episodes`."""
        return self._missed.get(step.stream, 0) if self._missed else 0

    def norms_of(self, block: Block) -> Floats:
        """Return the largest L2 gradient norm of each layer's parameters over a block, shape (steps, layers)."""
        if block.norms is None:
            self.layers.sync(block.steps[0], block.layout)
            block.norms = self.layers.norms_of(block)
        return block.norms
