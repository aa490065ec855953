"""Cross entropy is given probabilities: a softmax comes before a loss that has its own.

What it is
    ``CrossEntropyLoss`` expects raw scores (logits) and applies log-softmax itself. If the model already ends in a
    softmax, it is applied twice.

Symptoms
    The loss falls slowly and stops at a floor that no model can go below: ln(1 + (C - 1) / e) for C classes, 1.46
    for ten. Accuracy may still look fair, since the order of the classes is right. Gradients are small.

Evidence
    It is read from the graph of the loss: a softmax lies directly under the cross entropy, and the rows that it is
    given lie in [0, 1] and sum to 1. A log-softmax there is harmless, since applying it twice changes nothing, and
    NLLLoss after log-softmax is right.

What to do
    Give the loss the output of the last linear layer, and use softmax only to read probabilities.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.edits import exchanged, once_made
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.wording import number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm


def floor(classes: int) -> float:
    """Return the lowest mean cross entropy with probabilities as scores: ln(1 + (C - 1) / e).

    The best row of probabilities has 1 at the right class: -ln(e / (e + C - 1)).
    """
    return math.log1p((classes - 1) / math.e)


def judge(case: Case) -> Finding | None:
    """Weigh each cross entropy of the loss."""
    for term in case.terms:
        if term.kind == "cross_entropy":
            found = _weigh(case, term)
            if found is not None:
                return found
    return None


def _weigh(case: Case, term: LossTerm) -> Finding | None:
    if not sits_under(term):
        return None
    weigh = Weighing()
    weigh.speaks("a softmax lies directly under the cross entropy in the graph of the loss", 4.0, "softmax")
    # The values themselves confirm the graph.
    if term.softmax_axis_last is False:
        weigh.speaks("every number given to the cross entropy lies in [0, 1]", 2.5, "probabilities")
    elif term.normalised:
        weigh.speaks("every row given to the cross entropy lies in [0, 1] and sums to 1", 3.5, "probabilities")
    else:
        weigh.against("the rows given to the cross entropy do not sum to 1", 3.0, "not probabilities")
    if term.classes > 1 and term.reduction == "mean" and len(case.terms) == 1 and len(case.loss):
        _floor(case, weigh, floor(term.classes), term.classes)
    # A softmax module of its own is named as the layer to remove.
    layer = term.layer
    extra = targets.applied_by(case, term, "softmax")
    told = f"Take out {extra!r}, a softmax" if extra != layer else "Pass the raw scores to the loss"
    removal = exchanged(case, extra, "torch.nn.Identity()")
    return weigh.conclude(
        "a softmax before the cross entropy, which applies its own: the loss is given probabilities instead of logits",
        Remedy(
            f"{told}; take the softmax only where probabilities are read.",
            removal
            or f"logits = ...  # the output of {layer!r}, without softmax\n"
            "loss = torch.nn.functional.cross_entropy(logits, target)",
            (once_made(removal),) if removal else (),
        ),
        layer=extra,
        step=0,
        failure="loss floor",
    )


def sits_under(term: LossTerm) -> bool:
    """Return True if a softmax comes directly before the loss: a logarithm or a scale between undoes the harm."""
    return term.chain[:1] == ("softmax",)


def _floor(case: Case, weigh: Weighing, lowest: float, classes: int) -> None:
    known = case.loss.finite
    if case.loss.renewed:  # a loss that was computed in another way before has no floor there
        known = known.between(case.loss.renewed[-1][1], int(known.steps[-1])) if len(known) else known
    best = float(known.values.min()) if len(known) else float("nan")
    if best < lowest - 0.01:
        said = f"the loss fell to {number(best)} (lowest loss), below what probabilities allow with {classes} classes"
        weigh.against(said, 4.0, best, lowest)
    elif best >= lowest:
        weigh.speaks(
            f"the loss never went below {number(lowest)}, the floor for probabilities with {classes} classes: it came "
            f"down to {number(best)} (lowest loss)", 0.5, best, lowest,
        )  # fmt: skip


CAUSE = Cause(
    module=__name__,
    title="Softmax applied twice",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
    place="softmax",
)
