"""A loss that expects log-probabilities is given something else: raw scores, probabilities, or the wrong axis.

What it is
    ``NLLLoss`` only picks the number at the right class and negates it; ``KLDivLoss`` also takes its first argument
    for a logarithm. Both are right only if the scores went through ``log_softmax`` over the classes. Given raw
    scores the loss has no lower bound; given probabilities its slope vanishes; normalised over the batch (``dim=0``)
    the samples compete with each other instead of the classes.

Symptoms
    A negative loss: it falls without end for raw scores, and lies between -1 and 0 for probabilities. Over the wrong
    axis the loss looks usual and the accuracy stays poor.

Evidence
    The numbers given to the loss are read: the exponentials of a row of log-probabilities sum to 1 and none is
    positive. If the rows themselves sum to 1 they are probabilities; if the exponentials sum to 1 over the batch the
    softmax was taken over the wrong axis. A softmax before ``CrossEntropyLoss``, which has its own log-softmax, is
    double_softmax. Samples that depend on each other for any other reason are batch_axis_mixup: a softmax over the
    batch shows there too, and is the same fault. A loss that falls below zero because it is negated is
    loss_sign_flip.

What to do
    Use ``CrossEntropyLoss`` on the raw scores, or ``log_softmax`` over the class axis before ``NLLLoss``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.wording import number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm, ProbabilityMass

NEAR = 0.02
"""Largest distance of a sum from 1, for 16-bit numbers and a small constant under a logarithm."""


def judge(case: Case) -> Finding | None:
    """Weigh each term of the loss that expects log-probabilities."""
    for term in case.terms:
        if term.kind in ("nll", "cross_entropy", "kl_div") and not term.soft:
            found = _weigh(case, term)
            if found is not None:
                return found
    return None


def _finite(mass: ProbabilityMass) -> bool:
    """Return True if all sums are finite: those of NaN or infinite scores show nothing."""
    return all(map(math.isfinite, (mass.low, mass.high, mass.top)))


def _ones(low: float | None, high: float | None) -> bool:
    """Return True if the smallest and the largest sum are 1 within ``NEAR``."""
    return low is not None and high is not None and abs(low - 1) < NEAR and abs(high - 1) < NEAR


def _weigh(case: Case, term: LossTerm) -> Finding | None:
    # The sums of a row's values and exponentials distinguish log-probabilities, probabilities and scores.
    masses = [t.mass for t in targets.alike(case, term) if t.mass is not None and _finite(t.mass)]
    weigh, kind, what = Weighing(), term.kind, ""
    if not masses:
        if kind != "kl_div" or not term.direct:
            return None
        what = "raw scores"
        weigh.speaks("the output of a linear layer goes into kl_div, which expects its logarithm", 5.5, "raw scores")
    elif any(_ones(mass.low, mass.high) for mass in masses):
        return None
    elif all(_ones(m.plain_low, m.plain_high) and m.bottom is not None and m.bottom >= 0 for m in masses):
        what = "probabilities"
        weigh.speaks("every row given to the loss lies in [0, 1] and sums to 1, without a logarithm", 6.5, "softmax")
    elif all(_ones(m.batch_low, m.batch_high) for m in masses) and term.input_shape and term.input_shape[0] > 1:
        what = "log-probabilities over the batch"
        weigh.speaks("the exponentials sum to 1 over the batch and not over the classes", 8.0, "dim=0")
    else:
        what = _scores(masses, weigh)
    # Log-probabilities may have been changed on purpose; a negative loss is direct evidence.
    if "logsoftmax" in term.chain and what != "probabilities":
        weigh.against("a log-softmax stands below, and what follows it may be meant", 3.5, "logsoftmax")
    if case.loss.last < 0 and term.sign in (None, 1):
        weigh.speaks(f"the loss is {case.loss.ending}, and log-probabilities make none that is negative", 1.0,
                     case.loss.last, 0.0)  # fmt: skip
    name = "KLDivLoss" if kind == "kl_div" else "NLLLoss"
    return weigh.conclude(
        f"{what} given to {name}, which expects log-probabilities over the classes",
        Remedy(
            "Take log_softmax over the class axis before the loss, or use cross_entropy on the raw scores.",
            _code(kind, term),
        ),
        layer=targets.applied_by(case, term, "softmax" if what == "probabilities" else "logsoftmax"),
        step=0,
        failure="meaningless loss",
    )


def _scores(masses: list[ProbabilityMass], weigh: Weighing) -> str:
    """Weigh scores that are neither log-probabilities nor probabilities."""
    high, low = max(m.high for m in masses), min(m.low for m in masses)
    top = max(m.top for m in masses)
    weigh.speaks(f"the exponentials of a row sum to {number(low)} to {number(high)} and not to 1", 2.5, high, 1.0)
    if top > 1e-3:
        weigh.speaks(
            f"scores go up to {number(top)}, and the logarithm of a probability is never positive", 4.5, top, 0.0
        )
    return "raw scores"


def _code(kind: str, term: LossTerm) -> str:
    if kind == "kl_div":
        return (
            f"scores = ...  # {targets.head_code(term)}\n"
            'loss = torch.nn.functional.kl_div(scores.log_softmax(dim=-1), target, reduction="batchmean")'
        )
    return (
        f"scores = ...  # {targets.head_code(term)}, classes in dim 1\n"
        "loss = torch.nn.functional.cross_entropy(scores, target)\n"
        "# or: torch.nn.functional.nll_loss(scores.log_softmax(dim=1), target)"
    )


CAUSE = Cause(
    module=__name__,
    title="NLL or KL loss without log-probabilities",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
