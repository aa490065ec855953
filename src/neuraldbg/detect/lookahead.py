"""The state of each detector within a block: the steps that it has passed over, and those that it must observe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from neuraldbg.detect.block import Block
    from neuraldbg.detect.detector import Detector
    from neuraldbg.nouns import Step


class Ahead:
    """The number of steps of a block that each detector has passed over, independently of the others."""

    def __init__(self, block: Block, detectors: Sequence[Detector]) -> None:
        self._block = block
        self._at = 0
        """Index of the next step in the block."""
        self._until = [0] * len(detectors)
        """Index of the first step that each detector has not passed over."""
        self._pass_over: list[Callable[[Block, int], int] | None] = [getattr(d, "pass_over", None) for d in detectors]

    @property
    def next(self) -> Step | None:
        """The next step of the block. None at its end."""
        return self._block.steps[self._at] if self._at < len(self._block) else None

    def due(self, detectors: Sequence[Detector]) -> list[Detector]:
        """Return the detectors that must observe the next step, and go on to the step after it."""
        at = self._at
        self._at = at + 1
        return [d for number, d in enumerate(detectors) if self._until[number] <= at and not self._passes(number, at)]

    def _passes(self, number: int, at: int) -> bool:
        pass_over = self._pass_over[number]
        if pass_over is None:
            return False
        self._pass_over[number] = None  # a detector that must observe a step observes the rest of the block, too
        steps = pass_over(self._block, at)
        if steps:
            self._until[number] = at + steps
            self._pass_over[number] = pass_over
        return steps > 0
