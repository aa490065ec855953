"""The reader of evaluation scores: the loss, and for classes the accuracy, of passes without a backward pass.

The loss of an evaluation has no graph to read. So loss functions are wrapped, and read while a watched model is being
evaluated: not those of ``torch.nn.functional``, which programs pickle, keep in tables and are warned from, but the
built-in ones that those (and the modules) look up at each call.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import guarded
from neuraldbg.capture.guest.module_tree import training
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics.device import placement
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.moments import Call
    from neuraldbg.capture.loop.reader_context import Scene
    from neuraldbg.capture.readers.reader import Patch

_NN = torch._C._nn  # noqa: SLF001
_LOSSES: tuple[tuple[Any, str], ...] = (
    (_NN, "binary_cross_entropy"),
    (torch, "binary_cross_entropy_with_logits"),
    (_NN, "cross_entropy_loss"),
    (_NN, "huber_loss"),
    (_NN, "l1_loss"),
    (_NN, "mse_loss"),
    (_NN, "nll_loss_nd"),
    (_NN, "smooth_l1_loss"),
)
_PHASES = 256
"""Evaluations that are kept; beyond that the oldest quarter and the newest stay."""
_ROWS = 2048
"""Rows of one batch whose predictions are compared with their labels."""
_BATCHES = 10_000


class Evaluation(Reader):
    """Averages the losses of each evaluation: of the passes between two optimizer steps."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._evaluating = False
        self._passes = 0
        """Passes without gradients in eval mode since the last step."""
        self._losses: list[Tensor | float] = []
        self._right: list[float] = []
        self._phases: list[list[float | None]] = []

    def patches(self) -> Iterable[Patch]:
        """Return the wrappers of the loss functions."""
        return [(owner, name, functools.partial(self._loses, name)) for owner, name in _LOSSES if hasattr(owner, name)]

    def _loses(self, name: str, *args: Any, **kwargs: Any) -> Around:
        if self._evaluating and not torch.compiler.is_compiling() and self.scene.switch.in_full_step():
            value = yield
            self._note(name, value, args, kwargs)

    @guarded
    def _note(self, name: str, value: Any, args: Any, kwargs: Any) -> None:
        value = tensor_memory.readable(value)
        if value is None or value.numel() == 0 or len(self._losses) >= _BATCHES:
            return
        mean = value.detach() if value.dim() == 0 else value.detach().float().mean()
        self._losses.append(mean.clone() if placement.lies(mean) else float(mean))
        if name in ("cross_entropy_loss", "nll_loss_nd"):
            given = args[0] if args else kwargs.get("input")
            target = args[1] if len(args) > 1 else kwargs.get("target")
            share = _accuracy(given, target)
            if share is not None:
                self._right.append(share)

    def resumes(self) -> None:
        """Drop losses after a gap until a model is evaluated again."""
        self._evaluating = False
        self._passes = 0
        self._losses.clear()
        self._right.clear()

    def call_begins(self, call: Call) -> None:
        """Record if the next loss is an evaluation's."""
        self._evaluating = call.evaluating
        # In training mode such a pass may be part of the algorithm: samples of a generator, the actions of a policy.
        self._passes += call.first and call.evaluating and not training(call.model.root)

    def step_closes(self) -> None:
        """Set the scalars of the evaluation before this step."""
        if self._passes:
            self.scene.scalars["eval_passes"], self._passes = self._passes, 0
        if self._losses:
            loss, accuracy, _ = self._gathered()
            self.scene.scalars["eval_loss"] = loss
            if accuracy is not None:
                self.scene.scalars["eval_accuracy"] = accuracy
            self._end_phase()

    def summarise(self) -> None:
        """Log every evaluation, also the one after the last step."""
        if self._losses:
            self._end_phase()
        if self._phases:
            self.scene.log(FactKey.EVALUATION_SCORES, {"phases": list(self._phases)})

    def _gathered(self) -> tuple[float, float | None, int]:
        values = [float(loss) for loss in self._losses]
        accuracy = sum(self._right) / len(self._right) if self._right else None
        return sum(values) / len(values), accuracy, len(values)

    def _end_phase(self) -> None:
        loss, accuracy, batches = self._gathered()
        self._phases.append([self.scene.step, loss, accuracy, batches])
        if len(self._phases) > _PHASES:
            del self._phases[_PHASES // 4]
        self._losses.clear()
        self._right.clear()


def _accuracy(given: Any, target: Any) -> float | None:
    """Return the share of rows whose largest score is the label's, None if there are no class labels."""
    given, target = tensor_memory.readable(given), tensor_memory.readable(target)
    if given is None or target is None:
        return None
    if given.dim() != 2 or target.dim() != 1 or target.is_floating_point() or len(target) == 0:
        return None
    given, target = given[:_ROWS].detach(), target[:_ROWS]
    counted = target >= 0  # ignored rows have a negative label
    right = (given.argmax(1) == target) & counted
    return float(right.sum() / counted.sum()) if bool(counted.any()) else None


READER = Evaluation
