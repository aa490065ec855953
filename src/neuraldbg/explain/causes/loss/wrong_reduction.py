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
    large by about the number of summed elements, and would be usual without it.

What to do
    Use ``reduction="mean"``, or divide the sum by the batch size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.edits import before
from neuraldbg.explain.evidence.optimizer_steps import weigh_bearing
from neuraldbg.explain.evidence.wording import moved, number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

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
    """Weigh the first summed term, in a loss that ends in a sum."""
    if not at_root(case.loss_ops):
        return None
    for term in case.terms:
        if term.reduction == "sum" and summed(term) >= MANY:
            return _weigh(case, term, summed(term))
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
