"""Two losses pull the shared weights in opposite directions, or one drowns the other.

What it is
    Where a model is trained on the sum of two losses, the layers that both use get the sum of two gradients. If these
    point against each other with about equal strength, little is left of them; if one is a thousand times as strong,
    the other has no say.

How it shows
    The sum hardly falls although each loss alone would; or one task learns and the other does not.

How it is told apart
    At the output of the last layer that both losses use, the gradient that each sends there is read: the cosine between
    them, and their norms. Cosines down to about -0.3 are everyday between tasks. Gradients that oppose each other are
    named only where they cancel from the beginning and the training goes nowhere: at the end of a good training two
    terms that pull against each other are in balance, and cancel as well. A loss counts as drowned where its gradient
    is about a thousandth of the other's all the way, and its own task is not learnt: of classes the model still says
    the most frequent one. Of a drowned regression beside it nothing is said yet.

What to do
    Weigh the losses, balance them by their gradient norms, project conflicting gradients, or split the shared layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.loss_branches import LossBranchesFact
from neuraldbg.nouns.facts.targets import TargetsFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

OPPOSED = -0.5
"""Cosine below which two gradients oppose each other."""
LEFT = 0.35
"""Norm of the sum over the sum of the norms, below which two gradients cancel."""
LEADS = 100.0
"""Least ratio of the norms at every reading, for a loss that dominates the whole run."""
LONG = 100
"""Steps after which a classification should be better than a guess."""
SEEN = 200
"""Least number of predictions that must have been counted."""
EVEN = 0.3
"""Largest share of the most frequent class with which classes are balanced enough to recognise a guess."""
GUESS = 0.3
"""Share of the distance from a constant guess to no error, up to which predictions are hardly more than a guess."""
DROWNED = 1e3
"""Ratio of the norms from which the weaker loss has no effect."""


def judge(case: Case) -> Finding | None:
    """Weigh the two losses whose gradients cancel most, or of which one dominates."""
    if case.trouble.kind not in ("stuck", "slow", "diverged") or not case.loss.alone or case.learned:
        return _drowned(case)
    pairs = _pairs(case)
    readings = max(pairs.values(), key=lambda p: (len(p) >= 3, -_left(p)), default=[])
    if len(readings) < 3:
        return None
    # Opposed gradients of unequal norm do not cancel: cosine and remaining norm must both be low.
    cosine = float(np.median([r.cosine for r in readings]))
    left, names, layer = _left(readings), readings[0].names, readings[-1].layer
    first, second = (float(np.median([r.norms[i] for r in readings])) for i in (0, 1))
    weigh = Weighing()
    if cosine < OPPOSED and left < LEFT:
        weigh.speaks(
            f"the gradients of {names[0]} and {names[1]} oppose each other (cosine {number(cosine)}), and only "
            f"{percent(left)} of them is left", 3.5, cosine, OPPOSED,
        )  # fmt: skip
        beginning = [r.cosine for r in readings[:2]]
        if min(beginning) > OPPOSED:
            weigh.against("at the beginning they did not", 2.0, beginning[0], OPPOSED)
    elif min(first, second) > 0 and max(first, second) > DROWNED * min(first, second):
        weigh.speaks(
            f"the gradient of {names[0 if first > second else 1]} is {number(max(first, second) / min(first, second))} "
            f"times that of {names[1 if first > second else 0]}", 1.2, max(first, second) / min(first, second), DROWNED,
        )  # fmt: skip
    else:
        return None
    weigh.speaks(case.trouble.phrase, 1.5 if case.trouble.kind != "diverged" else 0.0)
    return weigh.conclude(
        f"two losses that work against each other, {names[0]} and {names[1]}: cosine {number(cosine)}, gradient norms "
        f"{number(first)} and {number(second)}",
        Remedy(
            "Weigh the two losses by the inverse of their gradient norms, or give each its own layers.",
            f"loss = {_weight(second, first)} * loss_1 + {_weight(first, second)} * loss_2",
        ),
        layer=layer,
        step=readings[0].step,
        failure=case.trouble.name or "slow learning",
    )


def _drowned(case: Case) -> Finding | None:
    """Weigh a classification that is hardly better than a guess, beside a loss with a far larger gradient."""
    if case.trouble.any or len(case.loss) < LONG or not case.loss.alone:
        return None
    for name, accuracy, chance in _guessing(case):
        for pair in _pairs(case).values():
            weak = next((i for i in (0, 1) if pair[0].names[i].startswith(name)), None)
            if weak is None or pair[0].names[1 - weak].startswith(name) or len(pair) < 3:
                continue
            # The other loss must dominate at every reading: a ratio that was once small let this one learn.
            ratios = [r.norms[1 - weak] / max(r.norms[weak], 1e-30) for r in pair]
            if min(ratios) < LEADS or float(np.median(ratios)) < DROWNED:
                continue
            times, (first, second) = float(np.median(ratios)), pair[0].names
            own, other = pair[0].names[weak], pair[0].names[1 - weak]
            weigh = Weighing()
            weigh.speaks(
                f"the gradient of {other} is {number(times)} times that of {own}, from the first step on",
                2.2, times, DROWNED,
            )  # fmt: skip
            weigh.speaks(
                f"after {len(case.loss)} steps {percent(accuracy)} of the classes are right; always the most frequent "
                f"one would give {percent(chance)}", 2.0, accuracy, chance,
            )  # fmt: skip
            weigh.speaks(f"the whole loss fell by {percent(case.loss.relative)} meanwhile", 0.7, case.loss.relative)
            return weigh.conclude(
                f"one loss that drowns another: the gradient of {other} is {number(times)} times that of {own}",
                Remedy(
                    "Weigh the two losses by the inverse of their gradient norms, or give each its own layers.",
                    f"loss = {1.0 if weak == 0 else 1 / times:.2g} * loss_1 + {1 / times if weak == 0 else 1.0:.2g} * "
                    f"loss_2  # 1: {first}, 2: {second}",
                ),
                layer=pair[-1].layer,
                step=pair[0].step,
                failure="one task that is not learnt",
            )
    return None


def _pairs(case: Case) -> dict[str, list[LossBranchesFact]]:
    pairs: dict[str, list[LossBranchesFact]] = {}
    for _, fact in case.run.versions(LossBranchesFact):
        pairs.setdefault(fact.pair, []).append(fact)
    return pairs


def _guessing(case: Case) -> list[tuple[str, float, float]]:
    """Return the classifications that only guess: beginning of the name, share of right predictions, and that of a
    constant guess.

    Each kind of loss must occur once, since two of a kind have the same name.
    """
    slots, found = case.run.known_each(TargetsFact), []
    for kind, name in (("nll", "nllloss"), ("cross_entropy", "nllloss")):
        ours = [slot.predicted for slot in slots if slot.kind == kind and slot.predicted is not None]
        if len(ours) != 1:
            continue
        counts = list(ours[0].classes.values())
        labels, right = sum(c.labels for c in counts), sum(c.right for c in counts)
        if labels < SEEN or len(counts) < 2:
            continue
        chance = max(c.labels for c in counts) / labels
        if chance <= EVEN and right / labels < chance + GUESS * (1 - chance):
            found.append((name, right / labels, chance))
    return found


def _left(readings: list[LossBranchesFact]) -> float:
    """Return the median norm of the sum of two gradients over the sum of their norms."""
    shares = []
    for r in readings:
        a, b = (float(n) for n in r.norms)  # the square of a large int has no float
        if a + b > 0:
            shares.append(float(np.sqrt(max(a * a + b * b + 2 * a * b * r.cosine, 0.0)) / (a + b)))
    return float(np.median(shares)) if shares else 1.0


def _weight(other: float, own: float) -> str:
    return f"{min(1.0, other / own):.2g}" if own > 0 else "1.0"


CAUSE = Cause(
    module=__name__,
    title="two losses work against each other",
    tier=Tier.SPECIFIC,
    explains=STALL & {"loss_plateau", "update_ratio_low"} | {"loss_plateau"},
    judge=judge,
    page=__doc__ or "",
    place="backward",
)
