"""Gradients are computed, but no step is ever taken: the weights stay as they were at the start.

What it is
    ``loss.backward()`` only computes gradients. The weights move in ``optimizer.step()``. It may be missing, written
    without parentheses (``optimizer.step``), stand behind a condition that never holds, be refused by the gradient
    scaler every time, or be taken with a learning rate of 0.

Symptoms
    The loss stays at its first value and only jitters with the batches. No error is raised.

Evidence
    It is read from the program: there are backward passes, and there is an optimizer that holds the model's weights and
    is cleared in the loop, but it never steps; or all its steps have a learning rate of 0 and no scheduler. The weights
    are compared with what they were: if they move, something else updates them (by hand, or another optimizer), and it
    is no fault. Steps that are no longer taken from some step on show in a loop that goes on: backward passes in
    training mode, each followed by a clear, up to the end. A learning rate that a schedule brings to 0 is named as
    that.

What to do
    Call ``optimizer.step()`` after ``loss.backward()``. With a scaler: ``scaler.step(optimizer)`` and
    ``scaler.update()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.training_loop import completed, rates
from neuraldbg.explain.evidence.wording import listing, plural, rounded
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.change import ChangeFact
from neuraldbg.nouns.facts.schedule import ScheduleFact
from neuraldbg.nouns.facts.unstepped import UnsteppedFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

PASSES = 10
"""Backward passes without a step from which they are no accumulation."""
OFTEN = 20
"""Calls of zero_grad() from which an optimizer is part of the loop, where another one steps."""
ZERO_STEPS = 5


def judge(case: Case) -> Finding | None:
    """Weigh optimizers that never step, then a learning rate of 0."""
    for fact in case.run.known_each(UnsteppedFact):
        found = _weigh_idle(case, fact)
        if found is not None:
            return found
    return _ceased(case) or _judge_rate(case)


def _ceased(case: Case) -> Finding | None:
    """Weigh steps that are no longer taken, while the loop goes on and clears its gradients."""
    change = case.run.known(ChangeFact, what="steps", stream=case.stream)
    if change is None or not (change.after or 0.0) >= PASSES:
        return None
    kind, times = case.optimizer_name, round(change.after or 0.0)
    weigh = Weighing()
    weigh.speaks(
        f"{kind} stepped up to step {change.since}; {times} backward passes followed, in training mode and with "
        "calls of its zero_grad(), and no step",
        5.5, times, PASSES,
    )  # fmt: skip
    return weigh.conclude(
        f"optimizer steps that are no longer taken after step {change.since}: {kind} is cleared but not stepped",
        Remedy(
            f"Call step() on the {kind} after each backward pass: look for a condition, an except, or a counter that "
            "skips it from then on, a gradient scaler that refuses it.",
            "optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
        ),
        step=change.until,
        failure=case.trouble.name or "no training",
    )


def _weigh_idle(case: Case, fact: UnsteppedFact) -> Finding | None:
    zeroed, backwards, others = fact.zeroed, fact.backwards, fact.steps
    if fact.moved or not fact.training or backwards < PASSES:
        return None
    if others and (zeroed < OFTEN or not fact.with_grad or not completed(case)):
        return None  # it may begin later
    kind, tries = fact.type or "optimizer", fact.scaler_steps
    weigh = Weighing()
    weigh.speaks(
        f"{backwards} backward passes ran, and {kind}, which "
        f"holds {plural(fact.tensors, 'tensor')}, never stepped",
        4.5 if others else 5.5, backwards, PASSES,
    )  # fmt: skip
    # An optimizer that the loop clears is meant to step; one that is never cleared may be left over.
    if zeroed * 2 >= backwards:
        weigh.speaks(f"its zero_grad() was called {zeroed} times, so it belongs to the loop", 1.0, zeroed, PASSES)
    elif not zeroed and not others:
        weigh.against("it was never cleared either, so it may be a leftover", 1.5, 0, 1)
    # A gradient scaler that skips every step looks the same, and needs another sentence.
    if tries and not others:
        weigh.against(f"the gradient scaler skipped all of its {plural(tries, 'step')}", 1.0, tries, 0)
        sentence = f"gradient scaler that refused every one of {plural(tries, 'step')}: the weights never move"
    else:
        sentence = f"optimizer steps that are never taken: {kind} is cleared but never stepped"
    return weigh.conclude(
        sentence,
        Remedy(
            f"Call step() on the {kind} after the backward pass, with parentheses and outside of any condition that "
            "never holds.",
            "optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
        ),
        layer=fact.layers[0] if others and fact.layers else None,
        step=0,
        failure=case.trouble.name or "no training",
    )


def _judge_rate(case: Case) -> Finding | None:
    if case.run.known(ScheduleFact) is not None:
        return None
    streams = [stream for stream in case.run.streams if len(rates(case, stream))]
    if not streams or any((rates(case, stream).values != 0).any() for stream in streams):
        return None
    count = sum(len(rates(case, stream)) for stream in streams)
    if count < ZERO_STEPS:
        return None
    usual = {"adaptive": 1e-3, "plain": 0.05}[case.lr_class]
    weigh = Weighing()
    weigh.speaks(f"all {count} steps were taken with a learning rate of 0", 6.5, 0.0, 0.0)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.5)
    return weigh.conclude(
        f"learning rate of 0 in {listing([case.optimizer_name])}: steps are taken and change nothing",
        Remedy(
            f"Give {case.optimizer_name} a learning rate above 0, such as {rounded(usual)}.",
            f'for group in optimizer.param_groups:\n    group["lr"] = {rounded(usual)}',
        ),
        step=0,
        failure=case.trouble.name or "no training",
    )


CAUSE = Cause(
    module=__name__,
    title="Backward pass without an optimizer step",
    tier=Tier.CERTAIN,
    explains=STALL,
    judge=judge,
    entails=frozenset({"gradient_conflict"}),
    page=__doc__ or "",
    place="backward",
)
