"""The learning rate starts at full height, and the first steps do harm that later ones would not.

What it is
    In the first steps Adam knows too little of the gradients: every weight moves by the whole learning rate. Networks
    with attention or of great depth are most sensitive just then. The usual practice is to let the learning rate rise
    from zero over some hundred steps.

Symptoms
    The loss shoots up, or sticks, within the first steps, at a learning rate with which the same model trains well
    once it is warmed up. Later the updates are much smaller, and harmless.

Evidence
    It is named where the trouble begins in the first steps, the optimizer is adaptive, the model has attention or is
    deep, the learning rate is in the usual range and does not rise, and the first updates are far larger, measured by
    the weights, than those that follow. A lower learning rate would help as well: as long as it was not tried the two
    cannot be distinguished, so lr_too_high is given as its equal.

What to do
    Let the learning rate rise over the first steps, and clip the gradient norm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.edits import after
from neuraldbg.explain.evidence.optimizer_steps import DEEP, POOR, attentive, poor
from neuraldbg.explain.evidence.record_readings import LR_MAX
from neuraldbg.explain.evidence.wording import literal, moved, number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

EARLY = 50
"""Steps within which the failure must begin."""
LARGE = 0.02
"""Update ratio of the first steps from which they may do harm; 1e-3 is healthy."""
FALLS = 2.0
"""Ratio of the first updates to later ones, from which the first were too large."""


def judge(case: Case) -> Finding | None:
    """Weigh the first updates against the later ones, in a model that is known to need a warm-up."""
    if not (case.trouble.any or poor(case) > POOR) or not case.adaptive or not 0 < case.lr <= LR_MAX["adaptive"]:
        return None
    rates = case.scalar("lr").finite().values[:EARLY]
    early = case.early_update_ratio
    if len(rates) < 5 or rates.max() > 1.5 * rates[0] or not early > LARGE:
        return None
    # Only models with attention, or deep ones, are known to need a warm-up.
    deep = len(case.weights)
    if not attentive(case) and deep < DEEP:
        return None
    weigh = Weighing()
    what = (
        "has attention"
        if attentive(case)
        else f"is {plural(deep, 'weight matrix').replace('matrixs', 'matrices')} deep"
    )
    weigh.speaks(f"the model {what}, and {case.optimizer_name} starts at its full learning rate", 1.0, float(rates[0]))
    weigh.speaks(f"the first updates were {moved(early)}", 1.0 if early < 5 * LARGE else 1.7, early, LARGE)
    _weigh_course(case, weigh, early)
    steps = max(100, min(1000, (case.run.steps or 1000) // 10))
    warmup = f"warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1e-3, total_iters={steps})"
    return weigh.conclude(
        f"a missing warm-up: {case.optimizer_name} begins at {number(case.lr)}, with first updates of {moved(early)}",
        Remedy(
            f"Let the learning rate rise to {number(case.lr)} over the first {steps} steps.",
            f"{warmup}\n# after each optimizer.step(): warm_up.step()   (the peak stays lr={literal(case.lr)})",
            (after("optimizer", warmup), after("step", "warm_up.step()")),
        ),
        step=0,
        failure=case.trouble.name or "unstable start",
        equivalent=("lr_too_high",),
    )


def _weigh_course(case: Case, weigh: Weighing, early: float) -> None:
    later = case.scalar("update_ratio").finite()
    later_values = later.values[later.steps > EARLY]
    usual = float(np.median(later_values)) if len(later_values) >= 10 else float("nan")
    if early > FALLS * usual:
        weigh.speaks(f"later ones are {moved(usual)}, at the same learning rate", 1.0, usual, early / FALLS)
    elif usual > 0:
        weigh.against("later updates are as large, so it is not the beginning alone", 1.5, usual, early / FALLS)
    # The harm must begin with the first updates.
    loss, onset = case.loss, case.onset
    if loss.early_rise > 1.2:
        weigh.speaks(
            f"within ten steps the loss rose to {number(loss.early_rise)} times its first value",
            1.5,
            loss.early_rise,
            1.2,
        )
    elif not loss.rose:
        weigh.against("the loss never rose above its first value", 2.5, loss.peak, loss.initial)
    if onset is not None and onset > EARLY:
        weigh.against(f"the trouble began at step {onset}, long after the first updates", 3.0, onset, EARLY)
    elif case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    else:
        weigh.speaks(f"after {case.steps_taken} steps the loss of {case.loss.ending} is still no better than what "
                     "the frequencies of the classes alone give", 1.0, poor(case), POOR)  # fmt: skip
    if case.sound_init is False:
        weigh.against("the weights began at an unusual scale", 1.5)


CAUSE = Cause(
    module=__name__,
    title="Learning rate without warmup",
    tier=Tier.STATISTICAL,
    explains=BLOW_UP | UNITS | (STALL - {"update_ratio_low"}),
    judge=judge,
    page=__doc__ or "",
)
