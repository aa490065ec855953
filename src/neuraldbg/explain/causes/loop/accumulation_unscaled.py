"""The gradients of several micro-batches are summed for one step, and not averaged.

What it is
    With gradient accumulation one step uses the gradients of K small batches. Each loss is a mean over its batch, so
    their sum is K times the gradient of one large batch. Unless each loss is divided by K, steps are K times too large
    for a learning rate that was chosen without accumulation.

Symptoms
    Like a learning rate that is too high: the loss swings or grows, and it gets worse with more micro-batches. An
    adaptive optimizer such as Adam rescales its steps, and then it does not matter.

Evidence
    It is counted how many backward passes, each with a forward pass of its own, make one step, and the end of the
    loss's graph is read: a division by a constant stands there if the loss is averaged. Whether the sum does harm is
    seen in the first updates: too large as they are, and in order when divided by K. Several different losses for one
    step (the two halves of a GAN, several tasks) are a sum on purpose.

What to do
    Divide each loss by the number of micro-batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.edits import before
from neuraldbg.explain.evidence.constant_guess import guessing_loss
from neuraldbg.explain.evidence.optimizer_steps import weigh_bearing
from neuraldbg.explain.evidence.training_loop import micro_batches
from neuraldbg.explain.evidence.wording import moved, number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.accumulation import AccumulationFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

MANY = 3
"""Least ratio of the sum to the mean: two losses for one step are common and mostly meant."""
LARGE = 0.1
"""norm(update) / norm(weight) from which a step is too large."""
SMALL = 0.02
HARDLY = 0.75
"""Share of the loss of a constant guess above which a run has hardly learnt."""


def judge(case: Case) -> Finding | None:
    """Weigh micro-batches whose losses are summed, of one optimizer and one kind of loss."""
    if not case.alone:
        return None
    about = case.run.known(AccumulationFact, stream=case.stream)
    count = micro_batches(case, case.stream)
    if about is None or count < MANY or about.wiped or about.by_hand:
        return None
    factor = count / max(about.divisor, 1.0)
    forwards = case.scalar("forwards").finite().values
    apart = len(forwards) > 0 and float(np.median(forwards)) >= count
    if factor < MANY or not apart or len(about.kinds) > 1:
        return None
    return _weigh(case, count, factor, count / factor)


def _weigh(case: Case, count: int, factor: float, divisor: float) -> Finding:
    weigh = Weighing()
    divided = f"divided by {number(divisor)}" if divisor > 1 else "not divided by their number"
    weigh.speaks(f"each step uses the sum of {count} losses that are {divided}", 2.0, count, MANY)
    # A sum is a fault only if the training suffers: a learning rate may be chosen for it.
    if case.trouble.broke:
        weigh.speaks(case.trouble.phrase, 2.0)
    elif case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    elif case.loss.last > HARDLY * (guess := guessing_loss(case)):
        said = f"the loss of {case.loss.ending} is hardly better than that of guessing, {number(guess)}"
        weigh.speaks(said, 1.0, case.loss.last, HARDLY * guess)
    else:
        weigh_bearing(case, weigh)
    # Adaptive steps and clipping cancel the factor.
    if case.adaptive:
        weigh.against(f"{case.optimizer_name} rescales its steps, so the size of the gradient hardly matters", 4.0)
    clipped = case.scalar("clip_limit")
    if len(clipped):
        weigh.against("the norm of the gradient is clipped, whatever its scale", 2.0)
    # Only updates that are too large with the sum, and would not be with the mean, are due to the factor.
    ratio = max((r for r in (case.first_update_ratio, case.early_update_ratio) if r == r), default=float("nan"))  # noqa: PLR0124
    if ratio > LARGE and case.first_update_ratio / factor < LARGE:
        weigh.speaks(
            f"updates in the first steps are {moved(ratio)}; of a mean the first would be "
            f"{number(case.first_update_ratio / factor)}",
            2.0, ratio, LARGE,
        )  # fmt: skip
    elif case.first_update_ratio / factor > LARGE:
        weigh.against("the updates would be too large even for a mean", 2.0, ratio / factor, LARGE)
    elif ratio < SMALL:
        weigh.against("the first updates are not too large", 2.5, ratio, SMALL)
    return weigh.conclude(
        f"gradients of {count} micro-batches that are summed and not averaged: steps are {number(factor)} times those "
        "of a mean",
        Remedy(
            f"Divide each loss by the number of micro-batches ({count}).",
            f"loss = loss / {count}\nloss.backward()",
            (before("backward", f"loss = loss / {count}"),),
        ),
        step=0,
        failure=case.trouble.name or "large gradients",
    )


CAUSE = Cause(
    module=__name__,
    title="Accumulated losses not divided",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | UNITS | (STALL & {"loss_plateau", "vanishing_gradients"}),
    judge=judge,
    page=__doc__ or "",
    place="loss",
)
