"""The learning rate is too low: training crawls.

What it is
    Each update changes the weights by a hundred-thousandth of their size or less. The direction is right, but the run
    would need orders of magnitude more steps.

Symptoms
    The loss falls smoothly and very slowly, or seems not to move at all. Nothing is unstable.

Evidence
    The ratio norm(update) / norm(weight) stays below 1e-5 while gradients are healthy. If gradients themselves vanish
    with depth, or the loss has already come down and levelled off, the learning rate is not to blame. A warm-up that is
    still rising is no fault. A rate that is set to next to nothing in mid-run, by no scheduler, is named by that.

What to do
    Multiply the learning rate by ten until the update ratio is about 1e-3.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.edits import arguments
from neuraldbg.explain.evidence.faded_updates import weigh_fall
from neuraldbg.explain.evidence.optimizer_steps import climbs
from neuraldbg.explain.evidence.record_readings import LR_MAX, LR_MIN, LR_USUAL
from neuraldbg.explain.evidence.training_loop import dropped
from neuraldbg.explain.evidence.wording import moved, number, rounded
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

LOW = 1e-5
"""Update ratio below which training is very slow; 1e-3 is healthy (Karpathy, CS231n notes)."""
HEALTHY = 1e-3


def judge(case: Case) -> Finding | None:
    """Weigh a rate that was set to next to nothing, else the size of the updates and the slope of the loss."""
    at = dropped(case, case.stream)
    if at is not None:
        return _dropped(case, at)
    ratio, lr = case.typical_update_ratio, case.lr
    smallest = LR_MIN[case.lr_class]
    if (not 0 < ratio < 10 * LOW and not lr < smallest) or climbs(case):
        return None
    weigh = Weighing()
    if not ratio > 0:
        ratio = float("nan")  # weights that do not move at all are frozen, dead or without a gradient
    _weigh_steps(case, weigh, ratio, smallest)
    _weigh_promise(case, weigh, ratio)
    # The median over weight matrices hides a layer that moves at a usual pace.
    largest = max((w.moved for w in case.weights if w.moved > 0), default=case.first_update_ratio)
    if largest > 10 * LOW:
        weigh.against(
            f"at the first step the largest update of a layer was {number(largest)} of its weights",
            4.0,
            largest,
            10 * LOW,
        )
    _weigh_course(case, weigh)
    _weigh_gradients(case, weigh)
    suggested = rounded(min(_suggest(lr, ratio), max(LR_USUAL[case.lr_class], lr)) if lr > 0 else 1e-3)
    size = f", so that each update is {moved(ratio)}" if ratio > 0 else ""
    raised = f"to about {suggested}, or step by step" if not lr > 0 or float(suggested) > lr else "step by step"
    if raised == "step by step":
        suggested = rounded(3 * lr)
    begun = f" from {number(lr)}" if math.isfinite(lr) else ""
    rate = f": {number(lr)} with {case.optimizer_name}" if math.isfinite(lr) else ""
    return weigh.conclude(
        f"a learning rate that is too low{rate}{size}",
        Remedy(
            f"Raise the learning rate{begun} {raised} until updates are about 1e-3 of the weights.",
            f"optimizer = torch.optim.{case.optimizer_name}(model.parameters(), lr={suggested})",
            (arguments(f"lr={suggested}"),),
        ),
        step=0,
        failure=case.trouble.name or "slow learning",
        equivalent=("schedule_error",) if not lr > 0 else (),
    )


def _dropped(case: Case, at: int) -> Finding:
    """Weigh a learning rate that the program set to next to nothing at a step."""
    lr, weigh = case.scalar("lr").finite(), Weighing()
    before, after = lr.at(at - 1), lr.at(at)
    weigh.speaks(f"the learning rate was set from {number(before)} to {number(after)} at step {at}, and stayed there "
                 f"for the last {case.steps_taken - at} steps", 4.5, after, before)  # fmt: skip
    weigh_fall(case, weigh, at, at)
    return weigh.conclude(
        f"a learning rate that is too low since step {at}: {number(after)} with {case.optimizer_name}",
        Remedy(
            f"Find what sets the learning rate at step {at}, and leave it at {number(before)} or lower it by less.",
            f"for group in optimizer.param_groups:\n    group['lr'] = {rounded(before)}",
        ),
        step=at,
        failure=case.trouble.name or "slow learning",
        equivalent=("schedule_error",),
    )


def _weigh_steps(case: Case, weigh: Weighing, ratio: float, smallest: float) -> None:
    """Weigh the size of the updates, and the learning rate, against usual ones."""
    lr = case.lr
    if ratio < LOW:
        weigh.speaks(
            f"updates are {moved(ratio)}",
            min(2.5 + math.log10(LOW / max(ratio, 1e-12)), 3.5),
            ratio,
            LOW,
        )
    elif ratio < 10 * LOW:
        weigh.speaks(f"updates are {moved(ratio)}, less than usual (about 1e-3)", 1.0, ratio)
    elif math.isfinite(ratio):
        weigh.against(f"updates are {moved(ratio)}, which is not too small", 2.0, ratio, LOW)
    if lr < smallest:
        weigh.speaks(
            f"a learning rate of {number(lr)} is below what is in common use with {case.optimizer_name}",
            1.5,
            lr,
            smallest,
        )
    elif LR_USUAL[case.lr_class] / 10 <= lr <= LR_MAX[case.lr_class]:
        weigh.against(f"a learning rate of {number(lr)} is usual with {case.optimizer_name}", 3.0, lr, smallest)


def _weigh_promise(case: Case, weigh: Weighing, ratio: float) -> None:
    """Weigh the updates against the learning rate, for an adaptive optimizer, whose steps have about that size."""
    sizes = [w.rms for w in case.weights if w.rms > 0]
    if not case.adaptive or not sizes or not ratio > 0:
        return
    promised = case.lr / float(np.median(sizes))
    if ratio < promised / 30:
        weigh.against(
            f"{case.optimizer_name} with this learning rate would change the weights by about {number(promised)}: "
            "something else holds the updates down", 2.5, ratio, promised,
        )  # fmt: skip


def _weigh_course(case: Case, weigh: Weighing) -> None:
    trouble, loss = case.trouble, case.loss
    if trouble.kind in ("slow", "stuck"):
        weigh.speaks(trouble.phrase, 1.5)
    elif trouble.broke:
        weigh.against("the run blew up, which small steps do not do", 4.0)
    elif case.learned:
        weigh.against(f"the loss fell by {loss.relative:.0%}", 3.0 if loss.relative > 0.2 else 1.5, loss.relative, 0.2)
    else:
        weigh.against("the training is not in trouble", 2.0)
    rates = case.scalar("lr").finite().values
    if len(rates) > 2 and rates[-1] > 3 * max(rates[0], 1e-300) and rates[-1] >= rates.max():
        weigh.against("the learning rate is still being warmed up", 2.5, float(rates[-1]), 3 * float(rates[0]))


def _weigh_gradients(case: Case, weigh: Weighing) -> None:
    if any("bfloat16" in dtype for dtype in case.precision.param_dtypes):
        weigh.against("weights in bfloat16 lose small updates by themselves", 2.5, "bfloat16")
    values = case.gradients.values
    if len(values) >= 3 and values.min() < 1e-4 * values.max():
        weigh.against("gradients vanish over depth, so it is not the learning rate alone", 1.5, float(values.min()))
    norms = case.scalar("grad_norm").finite().values
    if len(norms) and float(np.median(norms)) > 1e-3:
        weigh.speaks(
            f"gradients are healthy (median norm {number(float(np.median(norms)))})", 0.7, float(np.median(norms)), 1e-3
        )


def _suggest(lr: float, ratio: float) -> float:
    """Return the learning rate for updates of a healthy size, at most 1e6 times the present one."""
    return lr * float(np.clip(HEALTHY / ratio, 10, 1e6)) if ratio > 0 else lr * 10


CAUSE = Cause(
    module=__name__,
    title="Learning rate too low",
    tier=Tier.PALLIATIVE,
    entails=frozenset({"rank_collapse"}),
    explains=STALL,
    judge=judge,
    page=__doc__ or "",
)
