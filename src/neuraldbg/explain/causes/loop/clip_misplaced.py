"""Gradients are clipped at the wrong place in the loop, so that the step is taken with something else.

What it is
    ``clip_grad_norm_`` shortens the gradients that are there at that moment. It works only between the last
    ``backward`` and ``optimizer.step``. Called before ``backward`` it clips nothing or old gradients, called after the
    step it comes too late. With a gradient scaler it must come after ``scaler.unscale_(optimizer)``: before that the
    gradients are thousands of times too large, and the limit cuts them down to nearly nothing.

Symptoms
    As if there were no clipping: spikes, divergence. Before ``unscale_`` on the contrary: hardly any progress.

Evidence
    The order of the calls is seen in each step, and so is the gradient that the step is taken with: it is longer than
    the limit that was meant for it. A call that only measures the norm (an infinite limit) is left out, and so is a
    misplaced call that made no difference because no gradient was ever longer than the limit.

What to do
    backward, then ``scaler.unscale_(optimizer)`` if there is a scaler, then clip, then step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, Cause
from neuraldbg.explain.evidence.training_loop import order
from neuraldbg.explain.evidence.wording import literal, number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.clip import ClipFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

ALWAYS = 0.9
CALLS = 3
RARE = 0.1
"""Share of the steps with a gradient above the limit, below which the place of the clipping made little difference."""
PLACES = {
    "after_step": "after the step, when it is too late",
    "before_backward": "before the backward pass that makes the gradients",
    "between": "before the last backward pass of the step",
}


def judge(case: Case) -> Finding | None:
    """Weigh the clipping of each optimizer: gradients that are still scaled, then the wrong place in the loop."""
    for fact in case.run.known_each(ClipFact):
        if fact.calls < CALLS:
            continue
        if fact.scaled >= ALWAYS * fact.calls and fact.scale >= 2:
            return _scaled(case, fact)
        places = dict(zip(PLACES, (fact.after_step, fact.before_backward, fact.between), strict=True))
        if sum(places.values()) >= ALWAYS * fact.calls and fact.exceeded:
            place = max(places, key=lambda name: places[name])
            return _misplaced(case, fact, PLACES[place], places[place])
    return None


def _function(fact: ClipFact) -> str:
    return "clip_grad_value_" if fact.kind == "value" else "clip_grad_norm_"


def _scaled(case: Case, fact: ClipFact) -> Finding:
    limit, scale = fact.limit, fact.scale
    weigh = Weighing()
    weigh.speaks(
        f"{_function(fact)} was called {fact.scaled} times while the gradients still carried the loss scale of "
        f"{number(scale)}, so that its limit of {number(limit)} meant {number(limit / scale)}",
        6.5, scale, 1.0,
    )  # fmt: skip
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.5)
    return weigh.conclude(
        f"clipping before the gradients are unscaled: a limit of {number(limit)} cuts gradients that are "
        f"{number(scale)} times too large",
        Remedy(
            "Unscale the gradients before they are clipped.",
            f"scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\n{_call(fact)}\nscaler.step(optimizer)\n"
            "scaler.update()",
        ),
        step=fact.first or 0,
        failure=case.trouble.name or "gradients that are cut down",
    )


def _misplaced(case: Case, fact: ClipFact, place: str, count: int) -> Finding:
    limit, exceeded, worst = fact.limit, fact.exceeded, fact.worst
    weigh = Weighing()
    weigh.speaks(
        f"{_function(fact)} is called {place}, in all of {plural(count, 'call')}{case.counted}", 3.5, count, CALLS
    )
    weigh.speaks(
        f"{plural(exceeded, 'step')} of those that were measured went beyond the limit of {number(limit)}, the largest "
        f"by a factor of {number(worst)}",
        3.0, worst, 1.0,
    )  # fmt: skip
    seen = order(case, fact.stream)
    if seen:
        weigh.speaks(f"the order of the loop is {', '.join(seen)}", 0.3)
    # The place only matters for gradients above the limit.
    if exceeded < RARE * min(count, 64):
        weigh.against("most gradients were within the limit anyway", 2.0, exceeded, RARE)
    if case.trouble.broke:
        weigh.speaks(case.trouble.phrase, 0.5)
    return weigh.conclude(
        f"clipping {place}: steps are taken with up to {number(worst)} times the limit of {number(limit)}",
        Remedy(
            f"Move {_function(fact)} between the last backward pass and the step.",
            f"loss.backward()\n{_call(fact)}\noptimizer.step()",
        ),
        step=fact.first or 0,
        failure=case.trouble.name or "unclipped gradients",
    )


def _call(fact: ClipFact) -> str:
    return f"torch.nn.utils.{_function(fact)}(model.parameters(), {literal(fact.limit or 1.0)})"


CAUSE = Cause(
    module=__name__,
    title="Gradient clipping in the wrong place",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | (STALL & {"loss_plateau", "update_ratio_low"}),
    judge=judge,
    place="step",
    page=__doc__ or "",
)
