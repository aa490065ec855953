"""Triggers: the loss and gradient norms of one step enter, a reason to stop leaves. Only numbers are used."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_MEMORY = 0.9
_START = 5
_FIRST_STEPS_FACTOR = 1e3


class TriggerEngine:
    """The judge that decides from a step's loss and gradient norms if the step should not be applied.

    Reasons: a loss or gradient norm that is not finite; a layer's gradient norm above ``grad_threshold``; a loss above
    ``spike_factor`` times its moving average (exponential, memory 0.9, tested before it is updated; positive losses).
    The thresholds are those of Neural Observer.

    With ``above_start`` a finite number must also exceed ``spike_factor`` times the largest of the first five steps, so
    that a run whose loss is summed over the batch, or one that has converged to a loss near 0, is left alone; within
    those five steps only a thousandfold rise counts.
    """

    def __init__(self, grad_threshold: float = 100.0, spike_factor: float = 3.0, *, above_start: bool = False) -> None:
        self.grad_threshold = grad_threshold
        self.spike_factor = spike_factor
        self.above_start = above_start
        self.average: float | None = None
        """Moving average of the loss; None before the first finite loss."""
        self._checks = 0
        self._loss_start = self._grad_start = 0.0

    def check(self, loss: float | None, grad_norms: Mapping[str, float]) -> str | None:
        """Return the reason to stop the training at this step; None if it should go on."""
        reason = self._judge_loss(loss) or self._judge_gradients(grad_norms)
        self._learn(loss, grad_norms)
        return reason

    def _judge_loss(self, loss: float | None) -> str | None:
        if loss is None:
            return None
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        if self.average is None or self.average <= 0 or loss <= self.spike_factor * self.average:
            return None
        if self._usual(loss, self._loss_start):
            return None
        return f"the loss {loss:.4g} is {loss / self.average:.1f} times its moving average {self.average:.4g}"

    def _judge_gradients(self, grad_norms: Mapping[str, float]) -> str | None:
        for layer, norm in grad_norms.items():
            if not math.isfinite(norm):
                return f"the gradient of layer '{layer}' is not finite"
        layer, norm = max(grad_norms.items(), key=lambda item: item[1], default=("", 0.0))
        if norm <= self.grad_threshold or self._usual(norm, self._grad_start):
            return None
        return f"the gradient norm of layer '{layer}' is {norm:.4g}, above {self.grad_threshold:.4g}"

    def _usual(self, value: float, start: float) -> bool:
        if not self.above_start:
            return False
        if self._checks == 0:
            return True
        factor = _FIRST_STEPS_FACTOR if self._checks < _START else self.spike_factor
        return value <= factor * start

    def _learn(self, loss: float | None, grad_norms: Mapping[str, float]) -> None:
        norms = [norm for norm in grad_norms.values() if math.isfinite(norm)]
        if loss is not None and math.isfinite(loss):
            self.average = loss if self.average is None else _MEMORY * self.average + (1 - _MEMORY) * loss
            if self._checks < _START:
                self._loss_start = max(self._loss_start, abs(loss))
        if self._checks < _START:
            self._grad_start = max(self._grad_start, *norms, 0.0)
        self._checks += 1
