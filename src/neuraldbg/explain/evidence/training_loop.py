"""Readings of the training loop: its order, learning rate, micro-batches and outcome. No judgement."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.record_readings import ADAPTIVE
from neuraldbg.nouns.facts.order import OrderFact
from neuraldbg.nouns.facts.schedule import ScheduleFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns import Series
    from neuraldbg.nouns.facts.optimizer import OptimizerFact

EARLY_LOSSES = 10
"""Number of losses after a step that are compared with the loss at that step."""

DEAD = 1e-4
"""Share of its peak below which a learning rate no longer changes the weights."""
DEAD_SHARE, DEAD_STEPS = 0.2, 10
"""Share of the run, and steps, below ``DEAD`` from which it is not just the end of a schedule. A cosine has 0.6% there,
a line 0.01%."""
DROP = 99.0
"""Least factor of one step by which a rate that ends below ``DEAD`` was set, and not brought there by a schedule."""
LONG = 120
"""Characters from which only the first sentence of an error is written."""
_CLASS = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Iteration)\b|[A-Za-z_][\w.]*: ")
"""The begin of an exception's words: its class."""


def order(case: Case, stream: int) -> tuple[str, ...]:
    """Return the order of an optimizer's loop, as last read; empty if unknown."""
    known = case.run.known(OrderFact, stream=stream)
    return known.order if known is not None else ()


def rates(case: Case, stream: int | None = None) -> Series:
    """Return the learning rate of an optimizer over its steps."""
    return case.scalar("lr", stream).finite()


def dropped(case: Case, stream: int | None = None) -> int | None:
    """Return the step at which the learning rate was set to a tiny part of what it was, at once and for the rest of the
    run, but not to 0, where no scheduler is known that may have done it and it is the only optimizer; None if it was
    not, or for the end of the run alone.
    """
    lr = rates(case, stream)
    if len(case.run.streams) > 1 or any(
        fact.stream in (stream, None) and fact.steps for fact in case.run.known_each(ScheduleFact)
    ):
        return None
    alive = np.flatnonzero(lr.values > DEAD * lr.values.max()) if len(lr) else np.array([], int)
    if not len(alive) or alive[-1] + 1 >= len(lr):
        return None
    before, after = float(lr.values[alive[-1]]), lr.values[alive[-1] + 1 :]
    if len(after) < DEAD_STEPS or len(after) < DEAD_SHARE * len(lr):
        return None
    return int(lr.steps[alive[-1] + 1]) if 0 < after.max() < before / DROP else None


def completed(case: Case) -> bool:
    """Return True if the program ran to its own end: a call that it had not made by then would never have come."""
    return case.run.info.outcome.kind == "completed"


def raised(case: Case) -> str:
    """Return the message of the exception that ended the program; empty if none did."""
    outcome = case.run.info.outcome
    return outcome.message.strip() if outcome.kind == "raised" else ""


def brief(message: str) -> str:
    """Return an exception in one line: its class and the first sentence of its words, without a full stop."""
    lines = message.strip().splitlines() or ["an exception"]
    # Python puts the line of a syntax error before it; errors of CUDA have advice behind.
    line = next((line for line in lines if _CLASS.match(line)), lines[-1])
    first = line.partition(". ")[0] if len(line) > LONG else line
    return first.rstrip(".")


def crashed(case: Case) -> bool:
    """Return True if an exception ended the script. ``sys.exit(1)`` is none."""
    return case.run.info.outcome.kind == "raised" and not raised(case).startswith("SystemExit")


def micro_batches(case: Case, stream: int) -> int:
    """Return the median number of backward passes for one optimizer step; 0 if unknown."""
    values = case.run.scalar("backwards", stream).finite().values
    return int(np.median(values)) if len(values) else 0


def stream_at(case: Case, step: int) -> int:
    """Return the number of the optimizer that stepped at a step, or next after it; the main one if there is none."""
    later = case.history.stream[case.history.steps >= step]
    return int(later[0]) if len(later) else case.stream


def losses_from(case: Case, step: int) -> Series:
    """Return the losses of the optimizer that stepped at a step, from there on."""
    return case.loss_of(stream_at(case, step)).finite.between(step, max(case.run.steps, step))


def jump(case: Case, step: int) -> float:
    """Return the factor by which the loss rose after a step before it fell again; NaN if unknown.

    It is the median of the next losses, over the larger of the loss at the step itself and the median of later losses:
    one loss alone is noisy, and a loss that is high from the first on has not jumped.
    """
    losses = losses_from(case, step).values
    after = losses[1 : EARLY_LOSSES + 1]
    if len(losses) < 3 * EARLY_LOSSES or losses[0] <= 0:
        return float("nan")
    later = float(np.median(losses[len(losses) // 2 :]))
    return float(np.median(after)) / max(float(losses[0]), later, 1e-30)


def stateful(about: OptimizerFact) -> bool:
    """Return True if an optimizer keeps state between steps, by its OPTIMIZER fact."""
    adaptive = any(word.lower() in about.type.lower() for word in ADAPTIVE)
    return adaptive or any(group.momentum > 0 for group in about.groups)
