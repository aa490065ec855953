"""A parameter gets a gradient and a step, and does not change by a single bit.

In the details: `zero_grad` true, the gradient itself is always exactly zero (weight matrices only); otherwise the
gradient is there and the update is lost. `exact` false: the tensor is larger than the sample that is read of it, and
only the sample is known not to have changed; that holds for the first steps of the event of any large tensor.
Parameters without a gradient (frozen, unused) are not judged here: that is read from the program as a fact. Nor are
runs whose loss has settled, whose last updates may be below the precision of the weights, nor single steps with
learning rate zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.block import steps_before
from neuraldbg.detect.episodes import Episodes
from neuraldbg.detect.layer_rows import COUNT, MAX, MIN, NONFINITE, RMS, TOTAL
from neuraldbg.detect.readings import Readings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.detect.block import Block
    from neuraldbg.detect.readings import Parameters
    from neuraldbg.nouns import Event, Layout, Step


class UnchangedThresholds(Thresholds):
    """The thresholds of a parameter that does not change."""

    steps: int = Field(
        10,
        ge=1,
        description="Steps in a row. Source: SageMaker Debugger's UnchangedTensor takes 3; a first step at learning"
        " rate zero and branches that open after some steps are healthy.",
    )
    zero_grad_steps: int = Field(
        20,
        ge=1,
        description="Steps in a row where the gradient is zero as well. Source: twice the above; a gate or an "
        "expert may be inactive.",
    )
    smallest: float = Field(
        1e-30,
        gt=0,
        description="RMS gradient below which it counts as zero. Source: the underflow of float32 products.",
    )


class UnchangedParameters:
    """The detector of parameters that do not change in spite of a gradient and a step."""

    name: ClassVar[str] = "unchanged_parameters"
    needs: ClassVar[frozenset[str]] = frozenset({"param_grad", "update"})
    light: ClassVar[bool] = False

    def __init__(self, thresholds: UnchangedThresholds | None = None) -> None:
        self.thresholds = t = thresholds or UnchangedThresholds()
        self.readings = Readings()
        self._version = 0
        family = "optimizer_stability"
        self._lost = Episodes("unchanged_parameters", family, enter_steps=t.steps, leave_steps=t.steps)
        self._zero = Episodes("unchanged_parameters", family, enter_steps=t.zero_grad_steps, leave_steps=t.steps)

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        progress = self.readings.progress.observe(step)
        p, t = self._synced(step, layout), self.thresholds
        if not step.applied or not len(p.update):
            return []
        # Most steps end here: an update with rms 0 is needed.
        table, missed = step.table, self.readings.missed(step)
        still = table.take(p.update_rms) == 0
        if self._lost.idle and self._zero.idle and not still.any():
            return []
        count = table[p.update, COUNT]
        grad = table[p.grad, RMS]
        seen = (count > 0) & (table[p.grad, COUNT] > 0) & (p.grad >= 0) & (table[p.grad, NONFINITE] == 0)
        same = seen & still & (table[p.update, MIN] == 0) & (table[p.update, MAX] == 0)
        if not same.any():
            nothing = np.zeros_like(same)
            return self._lost.observe(step.index, nothing, seen, _never, missed=missed) + self._zero.observe(
                step.index, nothing, seen, _never, missed=missed
            )
        # A settled loss may have updates below the precision of the weights.
        exact = count >= table[p.update, TOTAL]
        if progress is not None and progress.learned():
            same = np.zeros_like(same)
        # A sample that does not change is soon followed by a reading of all values: the event waits for that, and its
        # first step is that of the sample, whose gradient was zero from then on.
        lost = same & (grad > t.smallest)
        zero = same & ~(grad > t.smallest) & p.matrix
        lr = step.scalars.get("lr")

        def describe(i: int) -> tuple[float, dict[str, Any]]:
            none = not grad[i] > t.smallest
            details = {"exact": bool(exact[i]), "zero_grad": none, "grad_rms": float(grad[i]), "lr": lr}
            details |= {"read": float(count[i]), "total": float(table[p.update[i], TOTAL])}
            details["steps"] = t.zero_grad_steps if none else t.steps
            return (0.5 if none or not exact[i] else 0.95), details

        events = self._lost.observe(step.index, lost, seen & ~lost, describe, missed=missed)
        return events + self._zero.observe(step.index, zero, seen & ~zero, describe, ready=exact, missed=missed)

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading steps in which every parameter changed."""
        p = self._synced(block.steps[first], block.layout)
        if not len(p.update):
            return len(block) - first
        if not (self._lost.idle and self._zero.idle):
            return 0
        return steps_before(block.take(p.update_rms, first) == 0)

    def _synced(self, step: Step, layout: Layout) -> Parameters:
        """Return the parameters of the layout, and set them as the places of the episodes if they are new."""
        p = self.readings.parameters
        p.sync(step, layout)
        if p.version != self._version:
            self._version = p.version
            self._lost.resize(p.places)
            self._zero.resize(p.places)
        return p

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return self._lost.ongoing() + self._zero.ongoing()


def _never(_: int) -> tuple[float, dict[str, Any]]:
    return 0.0, {}
