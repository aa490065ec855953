"""A sigmoid (or softmax) comes before a binary cross entropy that applies its own.

What it is
    ``BCEWithLogitsLoss`` expects raw scores (logits) and applies the sigmoid itself. If the model already ends in a
    sigmoid, it is applied twice, and the scores that the loss sees lie between 0 and 1.

Symptoms
    No probability below 0.5 or above 0.73 is possible. The loss stops at a floor: 0.69 for each negative and 0.31 for
    each positive. With few positives everything is predicted negative or nothing is learnt at all.

Evidence
    It is read from the graph of the loss: the sigmoid lies directly under the loss, with no scaling between, and the
    values that the loss was given lie in [0, 1]. A softmax before a cross entropy is double_softmax. A ``BCELoss``
    after one sigmoid is right.

What to do
    Give ``BCEWithLogitsLoss`` the output of the last linear layer, and use the sigmoid only to read probabilities.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.edits import exchanged, once_made
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm

POSITIVE, NEGATIVE = math.log1p(math.exp(-1.0)), math.log(2.0)
"""Lowest loss of a positive (score 1) and of a negative (score 0) if scores lie in [0, 1]."""


def judge(case: Case) -> Finding | None:
    """Weigh each binary cross entropy of the loss."""
    for term in case.terms:
        names = term.chain
        if term.kind == "bce_with_logits" and names[:1] in (("sigmoid",), ("softmax",)):
            return _weigh(case, term, names[0])
        if term.kind == "bce" and names[:2] in (("sigmoid", "sigmoid"), ("sigmoid", "softmax")):
            return _weigh(case, term, names[1])
    return None


def _weigh(case: Case, term: LossTerm, name: str) -> Finding:
    weigh = Weighing()
    logits = term.kind == "bce_with_logits"
    if logits:
        weigh.speaks(
            f"a {name} lies directly under binary_cross_entropy_with_logits in the graph of the loss", 5.0, name
        )
    else:
        weigh.speaks(f"a sigmoid stands on a {name} under the binary cross entropy", 5.0, name)
    # Values and floor confirm the graph: probabilities as logits keep the loss above a floor.
    given = term.input
    if logits and given is not None and given.min is not None and given.max is not None:
        if given.min >= 0 and given.max <= 1:
            weigh.speaks("all values given to the loss lie in [0, 1], where logits are expected", 1.5, "probabilities")
        else:
            weigh.against("the values given to the loss do not lie in [0, 1]", 4.0, given.max, 1.0)
    mean = term.target.mean if term.target is not None else None
    if mean is not None and 0 <= mean <= 1 and not term.weighted:
        targets.below(case, weigh, mean * POSITIVE + (1 - mean) * NEGATIVE, "probabilities given as scores")
    code = "loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target)"
    layer = targets.applied_by(case, term, name)
    removal = exchanged(case, layer, "torch.nn.Identity()")
    return weigh.conclude(
        f"a {name} before a binary cross entropy that applies its own sigmoid: the loss is given probabilities "
        "instead of logits",
        Remedy(
            "Pass the raw scores to the loss; take the sigmoid only where probabilities are read.",
            removal or f"logits = ...  # {targets.head_code(term)}, without {name}\n{code}",
            (once_made(removal),) if removal else (),
        ),
        layer=layer,
        step=0,
        failure="loss floor",
    )


CAUSE = Cause(
    module=__name__,
    title="Sigmoid applied twice",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
    place="sigmoid",
)
