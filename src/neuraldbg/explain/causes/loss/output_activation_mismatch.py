"""The last activation does not fit the loss: a sigmoid before unbounded targets, a softmax over one unit.

What it is
    The activation after the last layer limits the values that a network can give: sigmoid and softmax give 0 to 1, tanh
    -1 to 1, ReLU nothing negative, a softmax over a single unit always 1. If the targets lie outside, or the loss
    expects unbounded scores, the fit stops at a floor and the head saturates.

Symptoms
    The loss falls a little and stops, outputs stick to an end of their range, or the loss is constant from the first
    step and all gradients are zero (softmax or cross entropy over one unit). ``BCELoss`` without a sigmoid stops with
    an error as soon as an output leaves [0, 1].

Evidence
    It is read from the graph of the loss: the operation directly under it, and the targets against the range of that
    operation. A softmax before a cross entropy is double_softmax, a sigmoid before ``BCEWithLogitsLoss`` is
    double_sigmoid. A bounded head on targets that it can reach (images in [0, 1], actions in [-1, 1]) is right, and so
    is one that is scaled afterwards.

What to do
    End in a linear layer and leave the rest to the loss, or scale the targets into the range of the activation.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.edits import exchanged, once_made
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm

RANGE = {"sigmoid": "0 to 1", "softmax": "0 to 1", "tanh": "-1 to 1", "relu": "0 and above"}
SPAN = {"sigmoid": 1.0, "tanh": 2.0}
"""Largest difference between two scores after a bounded activation."""
SOME, MUCH = 0.05, 0.2
"""Shares of targets out of range: the least that is evidence, and the least that makes a fit impossible."""
BCE_INPUT = ("all elements of input should be between 0 and 1", "input_val >= zero && input_val <= one")


def judge(case: Case) -> Finding | None:
    """Weigh a crash of BCELoss, then the last operation before each term of the loss."""
    crashed = targets.raised(case, *BCE_INPUT)
    if crashed:
        return _crash(case, crashed)
    for term in case.terms:
        found = _one_unit(case, term) or _unreachable(case, term) or _bounded_scores(case, term)
        if found is not None:
            return found
    return None


def _finish(weigh: Weighing, case: Case, term: LossTerm, sentence: str, text: str, code: str) -> Finding:
    layer = targets.applied_by(case, term, targets.head(term))
    removal = exchanged(case, layer, "torch.nn.Identity()") if ", without " in code else ""
    remedy = Remedy(text, removal or code, (once_made(removal),) if removal else ())
    return weigh.conclude(sentence, remedy, layer=layer, step=0, failure="fit out of reach of the head")


def _one_unit(case: Case, term: LossTerm) -> Finding | None:
    """Weigh a softmax or a cross entropy over a single unit, which is a constant."""
    weigh = Weighing()
    if term.softmax_width == 1:
        weigh.speaks("the softmax under the loss runs over a single unit, so that its result is always 1", 8.0, 1, 2)
        sentence = "a softmax over a single unit, which always gives 1"
    elif term.kind in ("cross_entropy", "nll") and term.classes == 1 and not term.soft:
        weigh.speaks("the cross entropy runs over a single class, so that it is 0 whatever the output is", 8.0, 1, 2)
        sentence = "a cross entropy over a single class, which is always 0"
    else:
        return None
    return _finish(
        weigh, case, term, sentence,
        "Use one unit with a sigmoid loss for two classes, or as many units as there are classes.",
        f"logits = ...  # {targets.head_code(term)}, one unit\n"
        "loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.squeeze(-1), target.float())",
    )  # fmt: skip


def _unreachable(case: Case, term: LossTerm) -> Finding | None:
    """Weigh targets outside the range of the last activation, under a regression loss."""
    name = targets.head(term)
    shares = [t.outside for t in targets.alike(case, term) if t.outside is not None]
    if term.kind not in targets.REGRESSION or name not in RANGE or not shares:
        return None
    share = statistics.median(shares)
    if share < SOME:
        return None
    weigh, low, high = Weighing(), math.nan, math.nan
    if term.target is not None and term.target.min is not None and term.target.max is not None:
        low, high = term.target.min, term.target.max
    weigh.speaks(
        f"{percent(share)} of the targets ({number(low)} to {number(high)}) lie outside what {name} gives "
        f"({RANGE[name]})", 6.5 if share > MUCH else 3.0, share, SOME,
    )  # fmt: skip
    if case.learned and share <= MUCH:
        weigh.against(f"the loss falls well, {case.loss.course}", 1.0, case.loss.relative)
    return _finish(
        weigh, case, term,
        f"a {name} at the end, which gives {RANGE[name]}, before targets from {number(low)} to {number(high)}",
        f"Leave out the {name}, or bring the targets into its range.",
        f"prediction = ...  # {targets.head_code(term)}, without {name}",
    )  # fmt: skip


def _bounded_scores(case: Case, term: LossTerm) -> Finding | None:
    """Weigh an activation on the scores of a loss that expects unbounded ones."""
    # Bounded scores keep the loss above a floor; scores from a ReLU also lose the gradient of negative ones.
    kind, weigh, name = term.kind, Weighing(), targets.head(term)
    if kind == "cross_entropy" and name in SPAN and not term.soft:
        weigh.speaks(f"a {name} lies directly under the cross entropy, which expects unbounded scores", 6.0, name)
        if term.classes > 1:
            floor = math.log1p((term.classes - 1) * math.exp(-SPAN[name]))
            targets.below(case, weigh, floor, f"scores from {RANGE[name]} with {term.classes} classes")
    elif kind == "cross_entropy" and name == "relu" and not term.soft:
        weigh.speaks("a ReLU lies directly under the cross entropy: no score can fall below 0", 4.5, name)
    elif (kind == "bce_with_logits" and name == "relu") or (kind == "bce" and term.chain[:2] == ("sigmoid", "relu")):
        name = "relu"
        weigh.speaks("a ReLU lies directly under the sigmoid of the loss: no probability can fall below 0.5", 6.0, name)
        mean = term.target.mean if term.target is not None else None
        if mean is not None and 0 <= mean <= 1 and not term.weighted:
            targets.below(case, weigh, (1 - mean) * math.log(2.0), "scores that are never negative")
    else:
        return None
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    elif case.learned and case.loss.relative > 0.8:
        weigh.against(f"the loss falls well, {case.loss.course}", 1.0, case.loss.relative)
    return _finish(
        weigh, case, term, f"a {name} on the scores of a loss that expects unbounded ones",
        f"Give the loss the output of the last linear layer, without the {name}.",
        f"logits = ...  # {targets.head_code(term)}, without {name}",
    )  # fmt: skip


def _crash(case: Case, message: str) -> Finding | None:
    """Weigh an output outside [0, 1] on which BCELoss raised; NaN raises the same, and has other causes."""
    if case.origin is not None or any("sigmoid" in term.chain for term in case.terms):
        return None
    last = [layer for layer in case.ordered if layer.path in case.layout.called]
    ends = last[-1] if last else None
    if ends is not None and ends.type in ("Sigmoid", "Softmax"):
        return None
    weigh = Weighing()
    weigh.speaks(f"the script ended with: {message}", 5.0, "outside [0, 1]")
    if ends is not None:
        weigh.speaks(
            f"the last layer called is {ends.path or ends.type} ({ends.type}), which has no bound", 1.0, ends.type
        )
    return weigh.conclude(
        "outputs outside [0, 1] given to BCELoss, which expects probabilities",
        Remedy("Use the loss that applies the sigmoid itself.", "criterion = torch.nn.BCEWithLogitsLoss()"),
        layer=ends.path if ends is not None else None,
        step=0,
        failure="failed loss",
    )


CAUSE = Cause(
    module=__name__,
    title="Last activation does not fit the loss",
    entails=frozenset({"input_ignored", "zero_gradient_path", "dead_relu"}),
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
