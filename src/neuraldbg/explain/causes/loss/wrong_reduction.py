"""The loss is summed where its learning rate expects a mean.

What it is
    With ``reduction="sum"`` the loss and its gradient grow with the size of the batch. A learning rate that fits a
    mean is then too large by that factor.

Symptoms
    A large loss from the start, large gradients, and a run that blows up or jumps about with plain SGD. Changing
    the batch size changes the training.

Evidence
    The reduction is read from the graph of the loss. A sum alone is no fault: with a fitting learning rate, or with
    an optimizer that rescales its steps (Adam and its kin), it trains well. It is the cause when the steps are too
    large by about the number of summed elements, and would be usual without it. Where a sum takes the place of a mean
    in the middle of a run, or a factor comes before the loss, and the loss becomes many times as large at that step,
    it is the cause from then on.

What to do
    Use ``reduction="mean"``, or divide the sum by the batch size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.edits import before
from neuraldbg.explain.evidence.optimizer_steps import weigh_bearing
from neuraldbg.explain.evidence.setbacks import AT_ONCE
from neuraldbg.explain.evidence.wording import moved, number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.loss import LossFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm

MANY = 8
"""Number of summed elements from which the factor matters."""
CLASSES = {
    "cross_entropy": "CrossEntropyLoss",
    "nll": "NLLLoss",
    "mse": "MSELoss",
    "squared_error": "MSELoss",
    "l1": "L1Loss",
    "smooth_l1": "SmoothL1Loss",
    "huber": "HuberLoss",
    "bce": "BCELoss",
    "bce_with_logits": "BCEWithLogitsLoss",
    "kl_div": "KLDivLoss",
}
"""Class of torch for each kind of loss, for the remedy."""


def summed(term: LossTerm) -> int:
    """Return the number of elements that a term sums over: its targets, by their shape, or its rows."""
    shape = term.target_shape or term.input_shape[:1]
    return math.prod(shape) if shape else 0


def judge(case: Case) -> Finding | None:
    """Weigh a loss that grew by a factor from a step on, then the first summed term, in a loss that ends in a sum."""
    grown = _grown(case)
    if grown is not None:
        return grown
    if not at_root(case.loss_ops):
        return None
    for term in case.terms:
        if term.reduction == "sum" and summed(term) >= MANY:
            return _weigh(case, term, summed(term))
    return None


def _grown(case: Case) -> Finding | None:
    """Weigh a sum in the place of a mean, or a new factor, from a step on at which the loss jumped by it."""
    change, onset = case.change("loss"), case.onset
    if change is None or onset is None or not case.trouble.broke:
        return None
    facts = case.run.versions(LossFact, stream=case.stream)
    old = next((fact for step, fact in reversed(facts) if step <= change.since), None)
    new = next((fact for step, fact in facts if step >= change.until), None)
    if old is None or new is None or [t.kind for t in old.terms] != [t.kind for t in new.terms]:
        return None
    totals = [any(t.reduction == "sum" for t in fact.terms) for fact in (old, new)]
    factors = [fact.ops.count("mul") + fact.ops.count("div") for fact in (old, new)]
    jump = _jump(case, change.since, min(onset, change.until))
    if not (totals == [False, True] or (totals[0] == totals[1] and factors[1] > factors[0])) or jump is None:
        return None
    step, grew = jump
    weigh = Weighing()
    how = "is a sum, which was a mean before" if totals[1] and not totals[0] else "has a factor that it did not have"
    weigh.speaks(f"the loss {how}, from {change.when.removeprefix('at ')} on", 3.0, "sum", "mean")
    weigh.speaks(f"it became {number(grew)} times as large from one step to the next", 2.0, grew, MANY)
    weigh.speaks(case.trouble.phrase, 1.0)
    return weigh.conclude(
        f"a loss that grew by a factor: it {how} since step {step}, and so do its gradients",
        Remedy(
            "Keep the loss a mean, with the factor that the learning rate was chosen for, all the time; or divide the "
            "rate by the new factor.",
            f"loss = loss / {number(grew)}  # or the reduction as before",
        ),
        step=step,
        failure=case.trouble.name,
        tier=Tier.CERTAIN,
    )


def _jump(case: Case, since: int, until: int) -> tuple[int, float] | None:
    """Return the first step between two at which the loss became MANY times as large as before, and how many times."""
    steps, values = case.loss.finite.steps, case.loss.finite.values
    for at in range(int(np.searchsorted(steps, since, "right")), int(np.searchsorted(steps, until, "right"))):
        before = float(np.median(values[max(0, at - case.loss.window) : at])) if at else 0.0
        if before > 0 and values[at] >= MANY * before:
            return int(steps[at]), float(np.median(values[at : at + AT_ONCE])) / before
    return None


def at_root(ops: tuple[str, ...]) -> bool:
    """Return True if the loss ends in a sum: a sum under a root or a mean, or one that is divided, does not count."""
    if "sum" not in ops:
        return True  # a loss function that sums by itself
    return all(op in ("add", "sub", "neg", "mul") for op in ops[: ops.index("sum")])


def _weigh(case: Case, term: LossTerm, count: int) -> Finding:
    weigh = Weighing()
    weigh.speaks(f"the loss ({term.kind}) is a sum over {count} elements", 2.0, count, MANY)
    if case.trouble.broke:
        weigh.speaks(case.trouble.phrase, 1.5)
        if (case.onset or 0) > 20 and case.loss.gain > 0.05:
            weigh.against(f"the loss fell until step {case.onset} with the same sum", 2.0, case.onset, 20)
    elif case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.5)
    else:
        weigh_bearing(case, weigh)
    # Adaptive steps cancel the factor; else only updates that a mean would make small are due to it.
    if case.adaptive:
        weigh.against(f"{case.optimizer_name} rescales its steps, so the size of the gradient hardly matters", 3.0)
    ratio = case.first_update_ratio
    if ratio > 0.1 and ratio / count < 0.1:
        weigh.speaks(
            f"the first updates are {moved(ratio)}; a mean would make them {number(ratio / count)}",
            2.0, ratio, 0.1,
        )  # fmt: skip
    elif ratio / count > 0.1:
        weigh.against("the updates would be too large even for a mean", 2.0, ratio / count, 0.1)
    elif ratio < 0.02:
        weigh.against("the first updates are not too large", 2.0, ratio, 0.02)
    return weigh.conclude(
        f"a loss that is summed over {count} elements: gradients are {count} times those of a mean",
        Remedy(
            "Take the mean, or divide the learning rate by the number of elements.",
            f'criterion = torch.nn.{CLASSES.get(term.kind, "MSELoss")}(reduction="mean")\n'
            f"# or, before loss.backward(): loss = loss / {count}",
            (before("backward", f"loss = loss / {count}"),),
        ),
        step=0,
        layer=None,
        failure=case.trouble.name or "large gradients",
    )


CAUSE = Cause(
    module=__name__,
    title="Loss summed instead of averaged",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP | UNITS | (STALL & {"loss_plateau", "vanishing_gradients"}),
    judge=judge,
    page=__doc__ or "",
)
