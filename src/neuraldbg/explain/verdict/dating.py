"""The dates of hypotheses and events: what was found in a full step began between that and the full step before it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg.explain.evidence.symptom import KINDS
from neuraldbg.nouns.facts.change import ChangeFact
from neuraldbg.nouns.facts.loss import LossFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns import Event, Hypothesis


def _renewed(case: Case) -> tuple[int, int] | None:
    """Return the steps between which the loss came to be computed in another way, from as many terms as before, unless
    the symptom began at another time. A term that was added says nothing of the others.
    """
    if not case.loss.renewed:
        return None
    since, until = case.loss.renewed[-1]
    facts = dict(case.run.versions(LossFact, stream=case.stream))
    if since not in facts or until not in facts or len(facts[since].terms) != len(facts[until].terms):
        return None
    if case.onset is None:
        return since, until
    return (since, case.onset) if since < case.onset <= until else None


def dated(case: Case, hypothesis: Hypothesis) -> Hypothesis:
    """Return a hypothesis with the interval in which its cause began, where its step is the first that was read after a
    stretch of light steps. If the symptom that it explains began in that stretch, the cause did no later.
    """
    step, onset = hypothesis.step, case.onset
    if step == 0 and hypothesis.category == "loss" and (turn := _renewed(case)) is not None:
        return replace(hypothesis, step=turn[1], since=turn[0])
    if not step or hypothesis.since is not None or not case.skips or step == onset:
        return hypothesis
    if any(one.until == step and one.since == step - 1 for _, one in case.run.versions(ChangeFact)):
        return hypothesis  # a change of the program whose step is known
    before = case.last_read(step)
    if before is None or before >= step - 1 or not case.was_read(step):
        return hypothesis
    if KINDS.get(case.trouble.kind) in hypothesis.explains and onset is not None and before + 1 < onset < step:
        step = onset
    return replace(hypothesis, step=step, since=before)


def unseen(case: Case, event: Event) -> int | None:
    """Return the last step before an event whose layers were read, where those between were not: it began after that,
    and by its first step. None if its step is exact, as that of an event of the loss is.
    """
    before = case.last_read(event.first_step) if event.layer and case.skips else None
    return before if before is not None and before < event.first_step - 1 else None
