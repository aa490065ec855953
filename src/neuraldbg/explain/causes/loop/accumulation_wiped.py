"""Gradients of micro-batches that belong together are cleared before the step that should use them.

What it is
    Gradient accumulation adds up the gradients of several small batches and then steps once. Here the gradients are
    cleared before each of those batches, so the step sees the last one only, and the work of all others is thrown
    away. Typical reason: ``optimizer.zero_grad()`` stands at the top of the batch loop, while ``optimizer.step()`` is
    called every few batches, or only at the end of an epoch.

Symptoms
    Training is much slower than it should be, and as noisy as with the small batch. If the loss is divided by the
    number of micro-batches as well, steps are that many times too small.

Evidence
    The gradients are read just before each backward pass. They were there after the pass before, and are gone,
    although no optimizer stepped in between. Uses that clear on purpose are recognised: the weights were moved in
    between (sharpness-aware training), the input itself is differentiated (adversarial examples), the gradients are
    put together by hand (gradient surgery), or a scaler refused the step.

What to do
    Clear the gradients once for each step: right after ``optimizer.step()``, inside the same ``if``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.record_readings import owner
from neuraldbg.explain.evidence.wording import listing, number, percent, verb
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.accumulation import AccumulationFact
from neuraldbg.nouns.loss_names import parts

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

ALWAYS = 0.9
"""Least share of the steps with wiped gradients: a loop may skip a bad batch at times."""
FEW_STEPS = 3


def judge(case: Case) -> Finding | None:
    """Weigh the backward passes whose gradients were cleared before a step used them."""
    for stream in case.run.streams:
        wiped = case.run.scalar("wiped", stream).finite()
        hit = wiped.values >= 1
        if len(wiped) >= FEW_STEPS and hit.mean() >= ALWAYS:
            found = _weigh(case, stream, int(np.median(wiped.values[hit])), float(hit.mean()))
            if found is not None:
                return found
    return None


def _weigh(case: Case, stream: int, lost: int, share: float) -> Finding | None:
    steps = case.steps_read(stream)
    wiped = case.run.scalar("wiped", stream).finite()
    if len(wiped) < ALWAYS * steps and steps > 0:
        return None  # most steps had a single backward pass
    about = case.run.known(AccumulationFact, stream=stream) or AccumulationFact()
    divisor, forwards = about.divisor, about.forwards
    weigh, each = Weighing(), lost + 1
    named = parts(case.loss_names.get(stream, ""))
    weigh.speaks(
        f"of {each} backward passes for each step, the gradients of {lost} were cleared before anything used them, in "
        f"{percent(share)} of the steps{case.counted}",
        3.2, lost, 0,
    )  # fmt: skip
    # Losses that are divided, or have a forward pass each, are micro-batches; other passes may be cleared on purpose.
    if divisor >= 0.6 * each:
        weigh.speaks(f"each loss is divided by {number(divisor)}, so they were meant to be added up", 3.5, divisor, 1.0)
    if each >= 3:
        weigh.speaks(f"{each} backward passes for one step are no accident", 0.7, each, 3)
    if forwards >= each:
        weigh.speaks("each had a forward pass of its own", 0.5, forwards, each)
    elif lost_to := _never_fed(case):
        state = verb(lost_to, "takes part in the losses and has", "take part in the losses and have")
        weigh.speaks(f"{listing(lost_to)} {state} no gradient when the step comes", 2.5)
    elif forwards:
        weigh.against(f"there were fewer forward passes ({forwards})", 3.0, forwards, each)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.3)
    return weigh.conclude(
        f"gradients that are cleared before each of {each} {'losses' if named else 'micro-batches'}: only the last "
        "one counts in a step",
        _of_losses(named) if named else _of_micro_batches(each),
        step=int(wiped.steps[wiped.values >= 1][0]),
        failure=case.trouble.name or "lost gradients",
    )


def _of_micro_batches(each: int) -> Remedy:
    return Remedy(
        "Clear the gradients once per optimizer step, together with the step, and not before every micro-batch.",
        f"(loss / {each}).backward()\nif (i + 1) % {each} == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
    )


def _of_losses(names: list[str]) -> Remedy:
    """Return the remedy for several losses of one step, as those of a critic for real and generated data."""
    passes = "\n".join(f"{name}.backward()" for name in names)
    return Remedy(
        f"Clear the gradients once for each step, before {names[0]}.backward(), and not between {listing(names)}.",
        f"optimizer.zero_grad()\n{passes}\noptimizer.step()",
    )


def _never_fed(case: Case) -> list[str]:
    """Return the layers that are called and never have a gradient at a step: only wiped passes reached them."""
    uncalled = set(case.standing("uncalled"))
    return list(dict.fromkeys(owner(name) for name in case.standing("no_grad") if name not in uncalled))


CAUSE = Cause(
    module=__name__,
    title="Accumulated gradients cleared too early",
    tier=Tier.CERTAIN,
    explains=STALL,
    judge=judge,
    entails=frozenset({"param_unused"}),
    page=__doc__ or "",
)
