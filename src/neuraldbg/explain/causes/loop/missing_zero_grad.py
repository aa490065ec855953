"""Gradients are never cleared: each step adds to those of all steps before.

What it is
    PyTorch adds every new gradient to the ``.grad`` that is already there. A loop that never calls
    ``optimizer.zero_grad()`` therefore steps along the sum of all gradients since the beginning, which behaves like
    an enormous momentum that never decays.

Symptoms
    The gradient norm grows, the loss falls at first, then swings, rises or stalls. With an adaptive optimizer it
    can look almost normal and only end worse than it should. It is easily mistaken for a learning rate that is too
    high.

Evidence
    The gradients of the optimizer's own parameters are read just before the first backward pass of each step.
    They should be empty or zero there. Gradient accumulation (several backward passes for one step) is no fault: at
    the first pass of the next step the gradients have been cleared. A learning rate that is too high leaves no old
    gradients. Where they were cleared at first, and never from a step on, that step is told.

What to do
    Call ``optimizer.zero_grad()`` once for each optimizer step, before ``backward``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.edits import before
from neuraldbg.explain.evidence.wording import number, percent, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

STALE = 0.9
"""Share of parameters with an old gradient from which a step counts as not cleared."""
CLEARED, STALE_READ = 3, 5
"""Steps without old gradients at first, and with them from then on, by which a loop has changed for good."""
REMEDY = Remedy(
    "Clear the gradients once per optimizer step, before the backward pass.",
    "optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
    (before("backward", "optimizer.zero_grad()"),),
)
BY_HAND = Remedy(
    "Clear the gradients once per update, before the backward pass.",
    "model.zero_grad()\nloss.backward()",
    (before("backward", "model.zero_grad()"),),
)
"""The remedy for a program that updates its weights without an optimizer of torch."""


def judge(case: Case) -> Finding | None:
    """Weigh the steps of each optimizer that began with old gradients; return the clearest finding."""
    best: Finding | None = None
    for stream in case.run.streams:
        found = _judge_stream(case, stream)
        if found is not None and (best is None or found.log_odds > best.log_odds):
            best = found
    return best


def _judge_stream(case: Case, stream: int) -> Finding | None:
    stale = case.run.scalar("stale_grad", stream)
    if len(stale) < 3:
        return None
    later = stale.steps > 0  # gradients from before the first step are no fault of the loop
    values, steps = stale.values[later], stale.steps[later]
    if not len(values):
        return None
    hit = values >= STALE
    share, late = float(hit.mean()), _from_then_on(case, steps, hit)
    if late is not None:
        return late
    if share < 0.5:
        return None
    weigh, first = Weighing(), int(steps[np.flatnonzero(hit)[0]])
    by_hand = not case.run.info.optimizers
    whose = "parameters" if by_hand else "optimizer's parameters"
    weigh.speaks(
        f"{percent(float(np.median(values[hit])))} of the {whose} still carried a gradient before the "
        f"backward pass, in {int(hit.sum())} of the {plural(len(values), 'step')} after the first{case.counted}",
        6.5 if share >= 0.9 else 2.5,
        round(share, 4),
        STALE,
    )
    if share >= 0.9 and len(values) < 5:
        weigh.against(f"only {plural(len(values) + 1, 'step')} were read", 1.0, len(values) + 1)
    if share < 0.9:
        weigh.against("in the other steps the gradients had been cleared", 1.5, round(1 - share, 4))
    # A sum of all gradients so far grows with every step.
    norm = case.run.scalar("grad_norm", stream).finite().values
    if len(norm) >= 5:
        growth = float(np.max(norm[1:20]) / norm[0]) if norm[0] > 0 else float("nan")
        if growth > 2:
            weigh.speaks(f"the gradient norm grew {number(growth)} times within the first steps", 0.7, growth, 2.0)
        elif growth < 1.2:
            weigh.against("the gradient norm did not grow over the first steps", 0.5, growth, 1.2)
    return weigh.conclude(
        "gradients that are never cleared: every step adds to the sum of all gradients before it",
        BY_HAND if by_hand else REMEDY,
        step=first,
        failure=case.trouble.name or "gradient pile-up",
    )


def _from_then_on(case: Case, steps: Ints, hit: Bools) -> Finding | None:
    """Weigh gradients that were cleared at first, and never from a step on."""
    at = int(np.argmax(hit)) if hit.any() else 0
    if at < CLEARED or len(hit) - at < STALE_READ or not hit[at:].all():
        return None
    weigh, since, until = Weighing(), int(steps[at - 1]), int(steps[at])
    weigh.speaks(
        f"no parameter carried an old gradient before the backward pass up to step {since}, and nearly all did in all "
        f"{plural(len(hit) - at, 'step')} that were read from step {until} on", 6.0, 1.0, STALE,
    )  # fmt: skip
    onset = case.onset
    if onset is not None and since < onset <= until:
        until = onset  # the sum shows in the loss at once
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    return weigh.conclude(
        "gradients that are no longer cleared: every step adds to the sum of all gradients since then",
        REMEDY if case.run.info.optimizers else BY_HAND,
        step=until,
        since=since if until > since + 1 else None,
        failure=case.trouble.name or "gradient pile-up",
    )


CAUSE = Cause(
    module=__name__,
    title="Gradients never cleared",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
    place="step",
)
