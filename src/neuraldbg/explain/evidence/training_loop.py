"""Readings of the training loop's own facts: its order, accumulation, clipping, schedule. No judgement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.record_readings import ADAPTIVE
from neuraldbg.explain.evidence.wording import number
from neuraldbg.nouns.facts.order import OrderFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns import Series
    from neuraldbg.nouns.facts.optimizer import OptimizerFact

EARLY_LOSSES = 10
"""Losses after a step that are compared with the one at it."""
JUMP, JUST_BEFORE, SETTLED = 5.0, 20, 10
"""A learning rate jumps if it rises by more than this factor in one step; so many steps before a trouble are shortly
before it; and in the first few steps it warms up."""


def order(case: Case, stream: int) -> tuple[str, ...]:
    """Return the loop's order at the last step at which it changed; empty if it is not known."""
    known = case.run.known(OrderFact, stream=stream)
    return known.order if known is not None else ()


def rates(case: Case, stream: int | None = None) -> Series:
    """Return the learning rate of an optimizer over its steps."""
    return case.scalar("lr", stream).finite()


def rise(case: Case, onset: int | None) -> str:
    """Say that the learning rate jumped up shortly before a trouble began, "" if it did not: a fact, and no cause.

    A warm-up that begins with the run is none.
    """
    if onset is None:
        return ""
    found = rates(case, case.stream)
    before, after = found.values[:-1], found.values[1:]
    single = (found.width[:-1] == 1) & (found.width[1:] == 1)
    near = (found.steps[1:] >= onset - JUST_BEFORE) & (found.steps[1:] <= onset) & (found.steps[1:] >= SETTLED)
    at = np.flatnonzero(single & near & (before > 0) & (after > JUMP * before))
    if not len(at):
        return ""
    k = int(at[-1])
    return f"the learning rate rose from {number(before[k])} to {number(after[k])} at step {int(found.steps[k + 1])}"


def completed(case: Case) -> bool:
    """Return True if the program ran to its own end: what it did not do, it would never have done."""
    return case.run.info.outcome.kind == "completed"


def raised(case: Case) -> str:
    """Return the exception that ended the program, empty if none did."""
    outcome = case.run.info.outcome
    return outcome.message.strip() if outcome.kind == "raised" else ""


def micro_batches(case: Case, stream: int) -> int:
    """Return the usual number of backward passes for one step."""
    values = case.run.scalar("backwards", stream).finite().values
    return int(np.median(values)) if len(values) else 0


def stream_at(case: Case, step: int) -> int:
    """Return the optimizer that stepped at a step, or next after it; the main one if there is none."""
    later = case.history.stream[case.history.steps >= step]
    return int(later[0]) if len(later) else case.stream


def losses_from(case: Case, step: int) -> Series:
    """Return the losses of the optimizer that stepped at a step, from there on."""
    return case.loss_of(stream_at(case, step)).finite.between(step, max(case.run.steps, step))


def jump(case: Case, step: int) -> float:
    """Return by what factor the loss rose in the steps after one, and fell again; NaN if unknown.

    The median of those steps over the loss at the step itself, or over what the loss was later, whichever is less: one
    loss alone is noisy, and a loss that is high from the first on has not jumped.
    """
    losses = losses_from(case, step).values
    after = losses[1 : EARLY_LOSSES + 1]
    if len(losses) < 3 * EARLY_LOSSES or losses[0] <= 0:
        return float("nan")
    later = float(np.median(losses[len(losses) // 2 :]))
    return float(np.median(after)) / max(float(losses[0]), later, 1e-30)


def stateful(about: OptimizerFact) -> bool:
    """Return True if an optimizer, by its OPTIMIZER fact, remembers anything between steps."""
    adaptive = any(word.lower() in about.type.lower() for word in ADAPTIVE)
    return adaptive or any(group.momentum > 0 for group in about.groups)
