"""One optimizer step as it leaves the capture stage."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import numpy as np
    import numpy.typing as npt

    from neuraldbg.nouns.fact import Fact
    from neuraldbg.nouns.histogram import StepHistograms

SCALARS = {
    "loss": "value given to backward, averaged over the step's micro-batches, without a division by their number; NaN "
    "if it is, absent if no loss was seen",
    "loss_nonfinite": "how many of the step's losses were NaN or Inf",
    "lr": "largest learning rate over the parameter groups of the optimizer that stepped",
    "backwards": "backward passes in the step",
    "forwards": "forward passes with gradients of any watched model in the step",
    "stale_grad": "share of this optimizer's parameters whose gradient was nonzero before the step's first backward",
    "eval_layers": "dropout and batch-norm layers in eval mode during forward passes with gradients",
    "batch_size": "first dimension of the root model's first tensor input, summed over micro-batches",
    "grad_norm": "L2 norm of this optimizer's final gradients, read before the step",
    "unclipped_norm": "total gradient norm that clip_grad_norm_ found, where it was called",
    "clip_limit": "the largest norm that clip_grad_norm_ was told to leave",
    "update_ratio": "median over weight matrices of norm(update)/norm(weight)",
    "wiped": "backward passes of the step whose gradients were cleared and never used",
    "loss_scale": "the gradient scaler's scale, where one is used",
    "skipped": "steps that the gradient scaler skipped since the last one",
    "overflowed": "steps in a row, up to this one, that a fused optimizer left out because the gradient scaler found "
    "gradients that are not finite; absent if it was applied",
    "descent": "cosine between the update and the negative gradient, over a sample of weights: below 0 it goes uphill",
    "gradient_turn": "cosine between this step's gradient and that of the step before, over the same sample",
    "outside": "largest change of a weight between its last step and this, over its size, seen in small ones and in a "
    "few elements of others; absent if none",
    "second_moment_ratio": "largest over sampled parameters of rms(g / sqrt(v)) in an adaptive optimizer",
    "evals": "forward passes without gradients since the last step",
    "eval_passes": "those of them in eval mode; absent if there were none",
    "eval_loss": "mean loss of the evaluation before this step",
    "eval_accuracy": "share of right classes in it, where its loss is of classes",
    "resident": "bytes of memory that the process has resident at the end of the step",
    "device_memory": "bytes of the device that are allocated for tensors at the end of the step",
    "duration": "seconds since the previous step ended",
    "overhead": "seconds of those that this tool took on the training's thread",
}
"""Meanings of the scalars that a step may have, by name. A scalar that was not measured in a step is absent. Metrics of
the program's own are named ``metric/NAME`` beside these."""
RANGED = (
    "loss",
    "lr",
    "grad_norm",
    "unclipped_norm",
    "update_ratio",
    "eval_loss",
    "duration",
    "overhead",
    "resident",
    "device_memory",
)
"""Scalars of which a row of several steps keeps the least and the largest finite value beside the mean: those that are
drawn as curves. Metrics of the program's own are kept so, too."""


METRIC = "metric/"
"""Begin of the name of a scalar that the program logs: ``metric/accuracy``."""
_NONFINITE, _LOW, _HIGH = "metric_nonfinite/", "metric_low/", "metric_high/"


def ranged(name: str) -> bool:
    """Return True if a row of several steps keeps the least and the largest value of a scalar."""
    return name in RANGED or name.startswith(METRIC)


def ends_of(name: str) -> tuple[str, str]:
    """Return the names under which a row of several steps keeps the least and the largest value of a scalar."""
    # A program may log `accuracy` and `accuracy_low`, so the ends of a metric differ in front.
    if name.startswith(METRIC):
        return f"{_LOW}{name[len(METRIC) :]}", f"{_HIGH}{name[len(METRIC) :]}"
    return f"{name}_low", f"{name}_high"


def nonfinite_of(name: str) -> str:
    """Return the name of the scalar that counts how many values of another were NaN or Inf; "" if none does.

    A scalar that was not measured is NaN in a `History`, so only that count tells a NaN that was measured.
    """
    if name.startswith(METRIC):
        return f"{_NONFINITE}{name[len(METRIC) :]}"
    return "loss_nonfinite" if name == "loss" else ""


def summed(name: str) -> bool:
    """Return True if a scalar is added over the steps of a row, and not averaged: the counts of ``nonfinite_of``."""
    return name == "loss_nonfinite" or name.startswith(_NONFINITE)


def metric_scalars(name: str, value: float, nonfinite: int | None = None) -> dict[str, float]:
    """Return the scalars of a step by which a metric is recorded: its value, and how many values were NaN or Inf.

    ``value`` may be the mean of several values; ``nonfinite`` is how many of them were not finite, by default 1 if
    ``value`` is not.
    """
    key = f"{METRIC}{name}"
    bad = (not math.isfinite(value)) if nonfinite is None else nonfinite
    return {key: value, nonfinite_of(key): float(bad)} if bad else {key: value}


def metric_key(scalars: Collection[str], name: str) -> str | None:
    """Return the name of the scalar that holds a metric, None if there is none. ``metric/`` may stand in front."""
    for key in (f"{METRIC}{name}", name):
        if key.startswith(METRIC) and key in scalars:
            return key
    return None


def metric_names(scalars: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the metrics among names of scalars, sorted and without the ``metric/`` in front."""
    return tuple(sorted(name[len(METRIC) :] for name in scalars if name.startswith(METRIC)))


@dataclass(frozen=True)
class Step:
    """One optimizer step with its micro-steps. All numbers count from 0. ``on_step`` of a session is called with it.

    >>> losses = []
    >>> with NeuralDbg(model, on_step=lambda step, events: losses.append(step.loss)):
    ...     train(3)
    >>> len(losses)
    3
    """

    index: int
    """Number of the step."""
    stream: int
    """Number of the optimizer that stepped, in order of appearance: a GAN's two losses are two streams."""
    time: float
    """Seconds from the start of the run to the end of the step."""
    table: npt.NDArray[np.float64]
    """Statistics, shape (sites known at the end of the step, len(STATS)). Later steps may have more rows, never fewer.

    A light step, whose sites were not read to keep the budget, has no rows: shape (0, len(STATS)).
    """
    scalars: Mapping[str, float] = field(default_factory=dict)
    """Values by the names of SCALARS, and metrics that the program logged as ``metric/NAME``."""
    facts: tuple[Fact, ...] = ()
    """Facts that were read in this step."""
    applied: bool = True
    """False for a step that was halted before the optimizer changed the weights, or that a fused optimizer left out
    because gradients overflowed under a gradient scaler."""
    histograms: StepHistograms | None = None
    """Histograms. None in all but a few steps."""

    @property
    def light(self) -> bool:
        """True if only scalars were read in this step."""
        return len(self.table) == 0

    @property
    def loss(self) -> float | None:
        """Loss of the step. None if no loss was read."""
        return self.scalars.get("loss")
