"""What several detectors read of a step, worked out once for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.detect.layer_rows import GradLayers
from neuraldbg.detect.matrices import Parameters
from neuraldbg.detect.progress import Progresses

if TYPE_CHECKING:
    from neuraldbg.nouns import Step


class Readings:
    """The course of the losses, gradients by layer, parameters with their updates, and how many steps went unread.

    A detector has one of its own until `Watch` gives all of them the same.
    """

    __slots__ = ("_missed", "layers", "matrices", "parameters", "progress")

    def __init__(self) -> None:
        self.progress = Progresses()
        self.layers = GradLayers(matrices=False)
        self.matrices = GradLayers(matrices=True)
        self.parameters = Parameters()
        self._missed: dict[int, int] = {}

    def light(self, step: Step) -> None:
        """Take a light step: its loss counts, its sites were not read."""
        self._missed[step.stream] = self._missed.get(step.stream, 0) + 1
        self.progress.observe(step)

    def missed(self, step: Step) -> int:
        """Light steps of this step's optimizer up to now, which `Episodes` reckons as steps gone by unread."""
        return self._missed.get(step.stream, 0) if self._missed else 0
