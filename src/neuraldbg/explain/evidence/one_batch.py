"""The words for a run that learns nothing, of a copy of its model that was trained on one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.evidence.inputs import experiments
from neuraldbg.explain.evidence.wording import listing, number, plural
from neuraldbg.nouns.facts.experiment import OneBatch

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns.facts.experiment import Attempt

NOTHING = 0.95
"""Share of the first loss above which an attempt learnt nothing."""


def one_batch_words(case: Case) -> str:
    """Return what a copy of the model learnt of one batch in a plain loop, as a sentence without its capital and its
    full stop: the side on which the fault lies. "" if it was not tried, or says nothing.
    """
    tried = [one for one in experiments(case, OneBatch) if one.attempts]
    if len(tried) != 1:
        return ""
    attempts = tried[0].attempts
    if attempts[0].learnt:
        return (
            f"a copy of the model learns one batch by heart in a plain loop ({_course(attempts[0])}), so look at the "
            "data, and at the loop around the model"
        )
    slow = attempts[0].last > NOTHING * attempts[0].first  # nothing at all: an attempt may have been cut off by time
    if len(attempts) > 1 and attempts[-1].learnt and slow:
        return (
            f"a copy of the model does not learn one batch at the rate of the program ({_course(attempts[0])}), and "
            f"does at another ({_course(attempts[-1])}), so look at the learning rate"
        )
    if all(one.last > NOTHING * one.first for one in attempts):
        still = f"; the weights of {listing(tried[0].still)} do not move" if tried[0].still else ""
        return (
            f"even one batch cannot be learnt by a copy of the model in a plain loop ({_course(attempts[-1])}){still}, "
            "so look at the model, its initialisation and the loss"
        )
    return ""


def _course(one: Attempt) -> str:
    return (
        f"{one.optimizer} at {number(one.lr)}: loss from {number(one.first)} to {number(one.last)} in "
        f"{plural(one.steps, 'step')}"
    )
