"""Two losses pull the shared weights in opposite directions, or one drowns the other.

What it is
    Where a model is trained on the sum of two losses, the layers that both use get the sum of two gradients. If these
    point against each other with about equal strength, little is left of them; if one is a thousand times as strong,
    the other has no say.

Symptoms
    The sum hardly falls although each loss alone would; or one task learns and the other does not.

Evidence
    At the output of the last layer that both losses use, the gradient that each sends there is read: the cosine between
    them, and their norms. Cosines down to about -0.3 are everyday between tasks. Gradients that oppose each other are
    named only where they cancel from the beginning and the training goes nowhere: at the end of a good training two
    terms that pull against each other are in balance, and cancel as well. A loss counts as drowned where its gradient
    is about a thousandth of the other's all the way, and its own task is not learnt: of classes the model still says
    the most frequent one. A hundredth is enough where a kernel regression predicts these classes from the same inputs,
    so that the task can be learnt. A drowned regression is not reported yet.

What to do
    Weigh the losses, balance them by their gradient norms, project conflicting gradients, or split the shared layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.wording import literal, number, percent
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
MAY_LEAD, MAY_DROWN = 30.0, 100.0
"""The least and the median ratio of the norms, where inputs are known to tell the labels that are not learnt."""
LEARNABLE = 0.3
"""Share of the variance of labels that a kernel regression from the inputs explains: of two even classes it tells four
of five."""
SURE = 10.0
"""Standard deviations by which that regression exceeds one of permuted labels."""
SPREAD = 3.0
"""Standard deviation of targets from which their units make a loss large."""
CLASSIFICATIONS = {
    "nll": "nllloss",
    "cross_entropy": "nllloss",
    "bce": "binarycrossentropy",
    "bce_with_logits": "binarycrossentropywithlogits",
}
"""Operation of each kind of loss that has classes."""
NUMBERS = {"mse": "mseloss", "smooth_l1": "smoothl1loss", "huber": "huberloss", "l1": "l1loss"}
"""Operation of each kind of loss that has numbers."""


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
        _own_layers(names, layer) if cosine < OPPOSED and left < LEFT else _weighed(names, first, second),
        layer=layer,
        step=readings[0].step,
        failure=case.trouble.name or "slow learning",
    )


def _drowned(case: Case) -> Finding | None:
    """Weigh a classification that is hardly better than a guess, beside a loss with a far larger gradient."""
    if case.trouble.any or len(case.loss) < LONG or not case.loss.alone:
        return None
    for task in _guessing(case):
        for pair in _pairs(case).values():
            weak = next((i for i in (0, 1) if pair[0].names[i].startswith(f"{task.name} of ")), None)
            if weak is None or pair[0].names[1 - weak].startswith(f"{task.name} of ") or len(pair) < 3:
                continue
            # The other loss must dominate at every reading: a ratio that was once small let this one learn.
            ratios = _ratios(pair, weak)
            least, usual = (MAY_LEAD, MAY_DROWN) if task.known else (LEADS, DROWNED)
            if min(ratios) >= least and float(np.median(ratios)) >= usual:
                return _weigh_drowned(case, task, pair, weak)
    return None


def _ratios(pair: list[LossBranchesFact], weak: int) -> list[float]:
    return [r.norms[1 - weak] / max(r.norms[weak], 1e-30) for r in pair]


def _weigh_drowned(case: Case, task: Task, pair: list[LossBranchesFact], weak: int) -> Finding:
    ratios, names = _ratios(pair, weak), pair[0].names
    times = float(np.median(ratios))
    own, other = names[weak], names[1 - weak]
    weigh = Weighing()
    weigh.speaks(
        f"the gradient that {other} sends to the shared layers is {number(min(ratios))} to {number(max(ratios))} times "
        f"that of {own}, in {len(ratios)} readings from step {pair[0].step} to step {pair[-1].step}",
        2.2 if times >= DROWNED else 1.5, times, MAY_DROWN if task.known else DROWNED,
    )  # fmt: skip
    weigh.speaks(
        f"of {task.labels:,} labels{task.since} {percent(task.accuracy)} are predicted right; always the most frequent "
        f"class would give {percent(task.chance)}", 2.0, task.accuracy, task.chance,
    )  # fmt: skip
    if task.known:
        weigh.speaks(
            f"a kernel regression of these labels from {task.samples} inputs explains {percent(task.known)} of their "
            "variance: the task can be learnt", 1.5, task.known, LEARNABLE,
        )  # fmt: skip
    weigh.speaks(f"the whole loss fell by {percent(case.loss.relative)} meanwhile", 0.7, case.loss.relative)
    return weigh.conclude(
        f"one loss that drowns another: the gradient of {other} is {number(times)} times that of {own}",
        _balanced(case, pair, weak, times),
        layer=pair[-1].layer,
        step=pair[0].step,
        failure="one task that is not learnt",
    )


def _balanced(case: Case, pair: list[LossBranchesFact], weak: int, times: float) -> Remedy:
    """Return the scale of the larger loss's targets if its units make it large, else the weights of both losses."""
    other = pair[0].names[1 - weak]
    numbers = [s for s in case.run.known_each(TargetsFact) if NUMBERS.get(s.kind) == other.partition(" of ")[0]]
    if len(numbers) == 1 and numbers[0].std > SPREAD and numbers[0].mean is not None:
        mean, std = literal(numbers[0].mean), literal(numbers[0].std)
        return Remedy(
            f"Scale the targets of {other} to mean 0 and variance 1: their units make its gradient large. Undo it "
            "where predictions are used.",
            f"target = (target - {mean}) / {std}  # of {other}\n"
            f"# predictions in the old units: prediction * {std} + {mean}",
        )
    return _weighed(pair[0].names, *((1.0, times) if weak == 0 else (times, 1.0)))


def _weighed(names: tuple[str, str], first: float, second: float) -> Remedy:
    """Return weights that make the gradients of two losses, of these norms, as large as the smaller one."""
    return Remedy(
        "Weigh the two losses by the inverse of their gradient norms, or give each its own layers.",
        f"# loss_1: {names[0]}, loss_2: {names[1]}\n"
        f"loss = {_weight(second, first)} * loss_1 + {_weight(first, second)} * loss_2",
    )


def _own_layers(names: tuple[str, str], layer: str | None) -> Remedy:
    shared = layer or "shared"
    return Remedy(
        "Give each of the two losses its own layers: weights cannot balance gradients that point against each other.",
        f"self.own = copy.deepcopy(self.{shared})  # in __init__, before the optimizer is made\n"
        f"# in forward: self.{shared} for {names[0]}, self.own for {names[1]}",
    )


def _pairs(case: Case) -> dict[str, list[LossBranchesFact]]:
    pairs: dict[str, list[LossBranchesFact]] = {}
    for _, fact in case.run.versions(LossBranchesFact):
        pairs.setdefault(fact.pair, []).append(fact)
    return pairs


@dataclass(frozen=True)
class Task:
    """A classification that is hardly better than a guess."""

    name: str
    """Operation of its loss."""
    accuracy: float
    """Share of right predictions, of the later half of the readings."""
    chance: float
    """Share of the most frequent class."""
    labels: int
    """Labels whose predictions were read."""
    since: str = ""
    """Step of the first of these readings, in words; empty if it is not known."""
    known: float = 0.0
    """Share of the variance of the labels that the inputs explain; 0 if it was not tested, or too little."""
    samples: int = 0
    """Inputs from which it was tested."""


def _guessing(case: Case) -> list[Task]:
    """Return the classifications that only guess.

    Each kind of loss must occur once, since two of a kind have the same name.
    """
    slots, found = case.run.known_each(TargetsFact), []
    for kind, name in CLASSIFICATIONS.items():
        ours = [slot for slot in slots if slot.kind == kind and slot.predicted is not None]
        if len(ours) != 1 or ours[0].predicted is None:
            continue
        fit, counts = ours[0].fit, list(ours[0].predicted.classes.values())
        labels, right = sum(c.labels for c in counts), sum(c.right for c in counts)
        if labels < SEEN or len(counts) < 2:
            continue
        chance = max(c.labels for c in counts) / labels
        tested = fit is not None and fit.samples >= SEEN and fit.z > SURE and fit.score - fit.null > LEARNABLE
        # Unless inputs are known to tell the labels, a guess is only recognised where classes are many and even.
        if right / labels < chance + GUESS * (1 - chance) and (tested or chance <= EVEN):
            known = fit.score if tested and fit is not None else 0.0
            since = "" if ours[0].predicted.from_ is None else f" from step {ours[0].predicted.from_} on"
            samples = fit.samples if fit is not None else 0
            found.append(Task(name, right / labels, chance, labels, since, known, samples))
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
    title="Losses in conflict, or one drowned by another",
    tier=Tier.SPECIFIC,
    explains=STALL & {"loss_plateau", "update_ratio_low"} | {"loss_plateau"},
    judge=judge,
    page=__doc__ or "",
    place="loss",
)
