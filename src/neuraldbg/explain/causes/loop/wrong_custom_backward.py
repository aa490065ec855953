"""A custom autograd Function returns a gradient that is not the gradient of what it computes.

What it is
    ``torch.autograd.Function`` lets a program write ``backward`` by hand. PyTorch does not check it: a forgotten chain
    rule, a wrong sign, a missing factor or the wrong saved tensor gives gradients that point somewhere else.

Symptoms
    Training is slower or worse than it should be, or does not work at all, with no error. Everything before the
    Function gets the wrong gradient.

Evidence
    The Function is called once more with small copies of its own inputs in double precision, and its gradient is
    compared with finite differences along fixed directions. For a smooth function both agree to about eight digits.
    Functions that round, cut or return their input (straight-through estimators, gradient reversal, gradient clipping)
    have another gradient on purpose and are not judged, nor are random ones, those of installed packages, and those
    that cannot be called that way.

What to do
    Correct ``backward``; ``torch.autograd.gradcheck`` confirms it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, Cause
from neuraldbg.explain.evidence.graph_wiring import line
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.functions import FunctionsFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

WRONG = 0.01
"""Relative error from which a gradient is wrong; the error of the finite differences is a million times smaller."""
GROSS = 0.1


def judge(case: Case) -> Finding | None:
    """Weigh the custom Function whose gradient has the largest error."""
    wrong = [fact for _, fact in case.run.versions(FunctionsFact) if fact.judged and fact.error >= WRONG]
    return _weigh(max(wrong, key=lambda fact: fact.error)) if wrong else None


def _weigh(fact: FunctionsFact) -> Finding:
    name, error = fact.name, fact.error
    weigh = Weighing()
    weigh.speaks(
        f"along one direction of its input {fact.input} the derivative of {name} is {number(fact.numeric)} by "
        f"finite differences, and {number(fact.analytic)} by its backward",
        5.5 if error >= GROSS else 4.2, round(error, 6), WRONG,
    )  # fmt: skip
    if fact.place is not None:
        weigh.speaks(f"it is called at {line(fact.place)}", 0.2)
    return weigh.conclude(
        f"a wrong backward of the custom function {name!r}: its gradient is off by {percent(min(error, 1.0))}",
        Remedy(
            f"Correct {name}.backward, and check it in double precision.",
            "x = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)  # inputs as the function takes them\n"
            f"torch.autograd.gradcheck({name}.apply, (x,))",
        ),
        step=0,
        failure="training along a wrong gradient",
        at=fact.place,
        doing="the function is called",
    )


CAUSE = Cause(
    module=__name__,
    title="Custom backward is wrong",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL,
    judge=judge,
    page=__doc__ or "",
    place="",
)
