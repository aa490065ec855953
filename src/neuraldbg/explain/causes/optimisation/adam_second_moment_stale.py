"""Adam's memory of the gradient's size lags behind a sudden jump.

What it is
    Adam divides by a running mean of the squared gradient that remembers about 1/(1 - beta2) steps, a thousand at
    0.999. When gradients have been small for long and then jump, the divisor is still the old, small one: for some
    steps each update is several times as large as the learning rate means.

Symptoms
    A long quiet time, then gradients jump, updates follow, and one to ten steps later the loss shoots up; it may
    never come back. Known from large transformers, where an embedding's gradient reappears.

Evidence
    The ratio rms(g) / sqrt(v) is followed for each weight; it is 1 in a steady state and can reach 31 with a beta2 of
    0.999. It is the cause when that ratio is far above 1 before the loss moves, updates grow with it, and the
    learning rate did not. If the loss is an outlier at the very step at which gradients jump, the batch is to blame.

What to do
    Lower beta2 to 0.95 or 0.98, clip the gradient norm, or use an optimizer that clips its updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, UNITS, Cause
from neuraldbg.explain.edits import arguments, before
from neuraldbg.explain.evidence.optimizer_steps import betas, lag
from neuraldbg.explain.evidence.record_readings import LR_MAX
from neuraldbg.explain.evidence.wording import literal, number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

SLOW = 0.99
"""beta2 from which the second moment is averaged over enough steps to lag."""
RATIO = 4.0
"""rms(g) / sqrt(v) that steady training does not reach: above 2 Adam's updates begin to exceed the learning rate
(Wortsman et al. 2023, "Stable and low-precision training", found loss spikes 1 to 8 steps later)."""
QUIET = 30
"""Least number of steady steps before the jump."""
BEHIND = 30
"""Largest number of steps from the jump to the onset."""


def judge(case: Case) -> Finding | None:
    """Weigh a jump of the gradients after steady steps, followed by the loss."""
    both = betas(case)
    if both is None or not SLOW <= both[1] < 1 or not case.trouble.broke or case.onset is None:
        return None
    # A second moment can only lag after steps in which the gradients were steady.
    steps, ratio, layers = lag(case, both[1])
    near = np.flatnonzero((ratio > RATIO) & (steps >= case.onset - BEHIND) & (steps <= case.onset))
    if not len(near) or near[0] < QUIET:
        return None
    at = int(near[0])
    step, layer = int(steps[at]), layers[at]
    if (ratio[at - QUIET : at] > RATIO / 2).any() or _jumped_unread(case, int(steps[at - QUIET]), step):
        return None
    peak = float(ratio[at : at + 8].max())
    weigh = Weighing()
    weigh.speaks(
        f"at step {step} the gradients of {called(layer)} are {number(peak)} times what Adam remembers of them",
        3.0 if peak > 2 * RATIO else 2.0, peak, RATIO,
    )  # fmt: skip
    weigh.speaks(f"for at least {QUIET} steps before they had been steady", 0.5, QUIET)
    grew = _weigh_updates(case, weigh, step)
    _weigh_loss(case, weigh, step)
    if case.lr > LR_MAX["adaptive"]:
        weigh.against(f"the learning rate of {number(case.lr)} is too high by itself", 2.0, case.lr, LR_MAX["adaptive"])
    norm = case.healthy_grad_norm
    limit = literal(norm) if norm > 0 else "1.0"
    return weigh.conclude(
        f"an Adam whose second moment lags: gradients jumped at step {step} after a quiet time"
        + (
            f", and with beta2={literal(both[1])} updates outgrew the learning rate"
            if grew
            else f", which one with beta2={literal(both[1])} follows slowly"
        ),
        Remedy(
            f"Lower beta2 from {literal(both[1])} to 0.95, and clip the gradient norm at {limit}.",
            f"optimizer = torch.optim.{case.optimizer_name}(model.parameters(), lr={literal(case.lr)}, "
            f"betas=({literal(both[0])}, 0.95))\n"
            f"torch.nn.utils.clip_grad_norm_(model.parameters(), {limit})  # before optimizer.step()",
            (
                arguments(f"betas=({literal(both[0])}, 0.95)"),
                before("step", f"torch.nn.utils.clip_grad_norm_(model.parameters(), {limit})"),
            ),
        ),
        layer=layer,
        step=step,
        failure=case.trouble.name or "loss spike",
        equivalent=("lr_too_high",),
    )


def _jumped_unread(case: Case, first: int, step: int) -> bool:
    """Return True if the gradient norm jumped in a step before, of which nothing else was read: Adam knew it."""
    norm = case.scalar("grad_norm").finite().between(first, step - 1)
    light = np.array([not case.was_read(int(at)) for at in norm.steps], np.bool_)
    return len(norm) > 0 and bool((norm.values[light] > RATIO * np.median(norm.values)).any())


def _weigh_updates(case: Case, weigh: Weighing, step: int) -> bool:
    """Weigh the size of updates and the learning rate. Return True unless updates were read and did not grow."""
    grew = True
    updates = case.scalar("update_ratio").finite()
    before, after = updates.between(step - QUIET, step - 1).values, updates.between(step, step + 10).values
    if len(before) and len(after) and float(np.median(before)) > 0:
        growth = float(after.max() / np.median(before))
        if growth > 2:
            weigh.speaks(f"updates grew {number(growth)} times with it", 2.0, growth, 2.0)
        else:
            grew = False
            weigh.against("updates did not grow with it", 2.5, growth, 2.0)
    rates = case.scalar("lr").finite().between(step - QUIET, step + 10).values
    if len(rates) and rates.max() > 1.5 * rates[0]:
        weigh.against("the learning rate rose in these steps", 2.5, float(rates.max()), 1.5 * float(rates[0]))
    return grew


def _weigh_loss(case: Case, weigh: Weighing, step: int) -> None:
    before = case.loss.finite.between(step - QUIET, step - 1).values
    now = case.loss.finite.at(step)
    if len(before) < 5 or not np.isfinite(now):
        return
    # By the median, since one huge loss before the jump would make any loss look usual.
    level = float(np.median(before))
    usual = level + 4 * 1.4826 * float(np.median(np.abs(before - level))) + 0.05 * abs(level)
    if now <= usual:
        weigh.speaks(f"the loss of step {step} itself was usual ({number(now)}): it followed later", 1.5, now, usual)
    else:
        weigh.against(f"the loss of step {step} was already an outlier, so its batch is odd", 2.5, now, usual)
    weigh.speaks(case.trouble.phrase, 1.0)


CAUSE = Cause(
    module=__name__,
    title="Adam's second moment lags behind the gradient",
    tier=Tier.STATISTICAL,
    explains=BLOW_UP | UNITS,
    judge=judge,
    page=__doc__ or "",
)
