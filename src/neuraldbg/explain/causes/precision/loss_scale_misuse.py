"""The gradient scaler is used in the wrong way: its scale stays in the gradients, or is taken out of what has none.

What it is
    Half precision cannot hold small gradients, so a gradient scaler multiplies the loss by a large number before
    ``backward`` and divides the gradients by it inside ``scaler.step``. Every part is needed, once for each step:
    ``scaler.scale(loss).backward()``, ``scaler.step(optimizer)``, ``scaler.update()``. Calling ``optimizer.step()``
    instead steps with gradients that are thousands of times too large; differentiating the loss and not its scaled
    version, with gradients that many times too small.

Symptoms
    SGD diverges at once or does not move; Adam hides both, but gradients that overflowed are stepped with as well. Some
    mistakes are refused by the scaler itself with an error.

Evidence
    It is seen which loss is scaled, whether it is the one that is differentiated, and whether the optimizer is stepped
    by the scaler. Skipped steps now and then are how a scaler finds its scale, and no fault.

What to do
    ``scaler.scale(loss).backward()``, if needed ``scaler.unscale_(optimizer)`` and clip, ``scaler.step(optimizer)``,
    ``scaler.update()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, Cause
from neuraldbg.explain.evidence.training_loop import raised
from neuraldbg.explain.evidence.wording import number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.order import OrderFact
from neuraldbg.nouns.facts.scaler import ScalerFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

TIMES = 3
ALWAYS = 0.8
REFUSALS = {
    "step() has already been called since the last update()": "scaler.update() is missing after scaler.step()",
    "unscale_() has already been called on this optimizer": "unscale_() is called twice before scaler.update()",
    "unscale_() is being called after step()": "unscale_() is called after the step",
    "but _scale is None": "scaler.scale() is never called on the loss",
    "No inf checks were recorded for this optimizer": "scaler.step() found no gradient that was scaled",
    "No inf checks were recorded prior to update": "scaler.update() is called without a scaler.step() before it",
}
"""Error messages of the gradient scaler (torch/amp/grad_scaler.py), each with the fault behind it."""
CODE = (
    "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)  # only to clip\nscaler.step(optimizer)\nscaler.update()"
)


def judge(case: Case) -> Finding | None:
    """Weigh an error of the scaler that ended the script, then the ways in which the loop used it."""
    message = raised(case)
    for part, meaning in REFUSALS.items():
        if part in message:
            weigh = Weighing()
            weigh.speaks(f"the gradient scaler refused to go on: {message.splitlines()[-1].rstrip('.')}", 6.5)
            sentence = f"wrong use of the gradient scaler: {meaning}"
            return _conclude(case, weigh, sentence, case.run.steps)
    fact = case.run.known(ScalerFact)
    return (_counts(case, fact) if fact is not None else None) or _twice(case)


def _twice(case: Case) -> Finding | None:
    """Weigh an optimizer that is stepped by the scaler, and once more by itself with nothing in between.

    Of two optimizers that are stepped after one backward pass, the second has nothing before its step, too, but always.
    """
    if not case.precision.scaler:
        return None
    for stream in dict.fromkeys(one.stream for _, one in case.run.versions(OrderFact)):
        seen = [(step, one.order) for step, one in case.run.versions(OrderFact, stream=stream)]
        alone = [step for step, order in seen if order == ("step",)]
        known = dict(seen)
        # A step with a closure has nothing before it either, and another training of the program may take such steps.
        follows = ["backward" in known[step - 1] for step in alone if step - 1 in known]
        if follows and all(follows):
            weigh = Weighing()
            weigh.speaks(
                "after scaler.step() the optimizer is stepped once more with the same gradients, also where the scaler "
                "had skipped the step since they overflowed", 5.5, alone[0],
            )  # fmt: skip
            return _conclude(case, weigh, "optimizer.step() in addition to scaler.step(): each step is taken twice", 0)
    return None


def _counts(case: Case, fact: ScalerFact) -> Finding | None:
    scale, step = fact.scale, fact.first or 0
    seen = fact.seen or case.run.steps or 1  # in a long run not every step is read
    # Each way leaves the gradients with another scale than the optimizer needs: times the scale, divided, or mixed.
    weigh = Weighing()
    if fact.direct >= TIMES and fact.direct >= ALWAYS * seen and scale > 1:
        weigh.speaks(
            f"{plural(fact.direct, 'step')} of the optimizer{case.counted} were taken by itself, with gradients "
            f"{number(scale)} times too large, and none by the scaler",
            6.0, fact.direct, TIMES,
        )  # fmt: skip
        sentence = f"steps past the gradient scaler: gradients still carry its scale of {number(scale)}"
        return _conclude(case, weigh, sentence, step)
    if fact.discarded >= TIMES and not fact.used and fact.steps:
        weigh.speaks(
            f"in {fact.discarded} backward passes{case.counted} the loss was scaled and its unscaled "
            "version differentiated; scaler.step() then divides the gradients by the scale",
            6.5, fact.discarded, TIMES,
        )  # fmt: skip
        return _conclude(case, weigh, "scaled loss that is thrown away: backward runs on the unscaled one", step)
    if fact.mixed >= TIMES and len(case.run.streams) == 1 and fact.mixed >= ALWAYS * seen:
        weigh.speaks(
            f"{fact.mixed} scaled backward passes ran after unscale_() and before the step, so that scaled and "
            "unscaled gradients were added",
            5.5, fact.mixed, TIMES,
        )  # fmt: skip
        return _conclude(case, weigh, "gradients that are unscaled before all of them are there", step)
    return None


def _conclude(case: Case, weigh: Weighing, sentence: str, step: int) -> Finding:
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.5)
    return weigh.conclude(
        sentence,
        Remedy("Scale the loss, let the scaler take the step, and update it, once for each step.", CODE),
        step=step,
        failure=case.trouble.name or "wrongly scaled gradients",
    )


CAUSE = Cause(
    module=__name__,
    title="Gradient scaler used wrongly",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL,
    judge=judge,
    page=__doc__ or "",
)
