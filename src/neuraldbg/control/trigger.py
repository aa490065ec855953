"""Triggers: the loss and gradient norms of one step enter, a reason to stop leaves, or the event of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from neuraldbg.arguments import is_number, mapping, positive
from neuraldbg.errors import ConfigError
from neuraldbg.nouns import Event
from neuraldbg.nouns.event import EVENT_KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

_MEMORY = 0.9
_START = 5
_FIRST_STEPS_FACTOR = 1e3
BY_TRIGGER = 0.4
"""Confidence of an event whose bound is that of a trigger: below that of a symptom."""


class Excess(NamedTuple):
    """The number for which a trigger stops the training, in the terms of an event."""

    kind: str
    """Kind of event: ``exploding_gradients``, ``nonfinite_gradient``, ``loss_spike`` or ``nonfinite_loss``."""
    layer: str | None
    """Path of the layer. None for the loss."""
    value: float
    threshold: float | None
    """Bound that the number exceeds. None if the number is not finite."""
    words: str

    def event(self, step: int) -> Event:
        """Return the event of the step that is stopped. Its bound is the trigger's and not a detector's: the event is
        reported, and no cause rests on it.
        """
        details: dict[str, Any] = {"how": "trigger", "loss" if self.layer is None else "norm": self.value}
        if self.threshold is not None:
            details["threshold"] = self.threshold
        site = f"param_grad/{self.layer}" if self.layer is not None else ""
        sure = BY_TRIGGER if self.threshold is not None else 1.0
        return Event(self.kind, EVENT_KINDS[self.kind], step, step, self.layer, site, sure, details)


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
        self.grad_threshold = positive(grad_threshold, "grad_threshold")
        self.spike_factor = positive(spike_factor, "spike_factor")
        self.above_start = above_start
        self.average: float | None = None
        """Moving average of the loss; None before the first finite loss."""
        self.excess: Excess | None = None
        """The newest reason to stop; None if there was none at the last check."""
        self._checks = 0
        self._loss_start = self._grad_start = 0.0

    def check(self, loss: float | None, grad_norms: Mapping[str, float]) -> str | None:
        """Return the reason to stop the training at this step, a sentence; None if it should go on.

        The loss, and the L2 norms by layer, are numbers or tensors of one element. A loss of None is not judged.

        >>> TriggerEngine(grad_threshold=100.0).check(0.7, {"fc1": 250.0})
        "the gradient norm of layer 'fc1' is 250, above 100"
        """
        try:
            self.excess = self._judge_loss(loss) or self._judge_gradients(grad_norms)
            self._learn(loss, grad_norms)
        except (AttributeError, TypeError):  # found out only now, as this runs at every step
            if loss is not None and not is_number(loss):
                raise ConfigError(f"loss: give a number, or None if there is none, not {loss!r}") from None
            wrong = [norm for norm in mapping(grad_norms, "grad_norms").values() if not is_number(norm)]
            if wrong:
                raise ConfigError(f"grad_norms: give a number for each layer, not {wrong[0]!r}") from None
            raise
        return self.excess.words if self.excess is not None else None

    def _judge_loss(self, loss: float | None) -> Excess | None:
        if loss is None:
            return None
        if not math.isfinite(loss):
            return Excess("nonfinite_loss", None, loss, None, f"the loss is {loss}")
        if self.average is None or self.average <= 0 or loss <= self.spike_factor * self.average:
            return None
        if self._usual(loss, self._loss_start):
            return None
        times = loss / self.average
        said = f"{times:.1f}" if times < 1e4 else f"{times:.1e}".replace("e+0", "e").replace("e+", "e")
        told = f"the loss {loss:.4g} is {said} times its moving average {self.average:.4g}"
        return Excess("loss_spike", None, loss, self.spike_factor * self.average, told)

    def _judge_gradients(self, grad_norms: Mapping[str, float]) -> Excess | None:
        for layer, norm in grad_norms.items():
            if not math.isfinite(norm):
                words = f"the gradient of layer '{layer}' is not finite"
                return Excess("nonfinite_gradient", layer, norm, None, words)
        layer, norm = max(grad_norms.items(), key=lambda item: item[1], default=("", 0.0))
        if norm <= self.grad_threshold or self._usual(norm, self._grad_start):
            return None
        told = f"the gradient norm of layer '{layer}' is {norm:.4g}, above {self.grad_threshold:.4g}"
        return Excess("exploding_gradients", layer, norm, self.grad_threshold, told)

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
