"""One class makes up nearly all labels, and the model predicts it always.

What it is
    Where 95 of 100 labels are one class, predicting it always is right in 95 of 100 cases. The few others contribute
    little to the mean loss, and the model may never learn to predict them.

Symptoms
    High accuracy, a loss near the entropy of the labels' frequencies, and not one prediction of a rare class.

Evidence
    Labels are counted over the run, and the predictions are read now and then in its later part. Imbalance alone is no
    fault: if the rare classes are found, or are weighted in the loss, nothing is said. If the inputs tell little of the
    labels, as with clicks on advertisements, the majority is the best guess for every single sample, and the model may
    still rank samples well: a kernel regression on a few hundred samples tells how much there is to be learnt. A model
    that predicts one class of balanced ones has another fault. Batches of one class from a step on, which the model
    knows and whose loss does not jump, are a part of the data that holds nothing else: what was learnt of the other
    classes is lost.

    Weights of the classes that grow with their frequency are the wrong way round, whatever is predicted.

What to do
    Weight the classes in the loss, or sample the rare ones more often; judge by recall and not by accuracy.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.late_labels import one_class_since
from neuraldbg.explain.evidence.wording import literal, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm
    from neuraldbg.nouns.facts.targets import TargetsFact

MAJORITY = 0.8
"""Share of one class from which labels are imbalanced."""
ALWAYS = 0.98
"""Share of predictions of one class from which it counts as predicted always."""
RARE = 10
"""Least number of labels of other classes in the readings."""
TILTED = 2.0
"""Least ratio of the most frequent class to the rarest one, and of their weights, for weights that follow either."""
UNORDERED = 0.2
"""Share of the classes, in the order of their frequency, whose weight may be smaller than that of the class before."""
STEPS = 60
TOLD = 0.06
"""R^2 of a kernel regression below which hardly any sample is more likely of a rare class than of the main one."""
WELL = 0.12
"""R^2 of a kernel regression from which a good part of the rare class can be predicted."""


def judge(case: Case) -> Finding | None:
    """Weigh the predictions of each supervised loss with classes."""
    for slot in targets.slots(case):
        rows = slot.predicted.classes if slot.predicted is not None else {}
        term = targets.supervised(case, slot)
        if term is None or case.run.steps < STEPS:
            continue
        if (found := _since(case, slot, term) or _turned(case, term)) is not None:
            return found
        if not rows or term.weighted:
            continue
        name, major = max(rows.items(), key=lambda item: item[1].labels)
        labels, said = sum(row.labels for row in rows.values()), sum(row.said for row in rows.values())
        others = labels - major.labels
        right = sum(row.right for row in rows.values()) - major.right
        if others < RARE or major.labels < MAJORITY * labels:
            continue
        if major.said >= ALWAYS * said and right <= 0.02 * others:
            return _weigh(case, slot, term, name, (major.labels / labels, others, right))
    return None


def _since(case: Case, slot: TargetsFact, term: LossTerm) -> Finding | None:
    """Weigh batches of one class from a step on, which the model knows."""
    turn = one_class_since(case, slot, term)
    if turn is None or not turn.same or turn.rose or not np.isfinite(turn.level):
        return None
    weigh = Weighing()
    turn.weigh(weigh, 4.0)
    weigh.speaks(f"the loss does not jump there: the inputs belong to that class; it ends at {case.loss.ending}", 1.0)
    return weigh.conclude(
        f"batches of {'nearly ' * (turn.share < 1)}class {turn.classes[0]} alone {turn.when}: the model may "
        "unlearn the others",
        Remedy(
            "Mix the classes again: shuffle over the whole data set and not within one of its files.",
            "loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True)",
        ),
        layer=term.layer,
        step=turn.until,
        since=turn.since,
        failure="forgetting of the other classes",
    )


def _turned(case: Case, term: LossTerm) -> Finding | None:
    """Weigh weights of the classes that are larger, the more labels a class has."""
    counts: dict[int, int] = {}
    for one in targets.alike(case, term):
        for name, count in one.target_histogram.items():
            counts[int(name)] = counts.get(int(name), 0) + count
    classes = sorted(
        (
            name
            for name in counts
            if name != term.ignore and 0 <= name < len(term.class_weights) and term.class_weights[name]
        ),
        key=counts.__getitem__,
    )
    if len(classes) < 2:
        return None
    weights = [term.class_weights[name] for name in classes]
    rare, major = classes[0], classes[-1]
    tilted = counts[major] >= TILTED * counts[rare] and weights[-1] >= TILTED * weights[0] >= 0
    if counts[rare] < RARE or not tilted:
        return None
    if sum(later < earlier for earlier, later in itertools.pairwise(weights)) > UNORDERED * len(weights):
        return None
    weigh = Weighing()
    weigh.speaks(
        f"the loss weights class {major}, with {counts[major]:,} labels of those that were read, by "
        f"{number(weights[-1])}, and class {rare}, with {counts[rare]:,}, by {number(weights[0])}",
        5.0, weights[-1], weights[0],
    )  # fmt: skip
    if len(classes) > 2:
        weigh.speaks(f"over all {len(classes)} classes the weights grow with the frequency", 0.7)
    return weigh.conclude(
        "class weights that are the wrong way round: the more frequent a class is, the more it weighs",
        Remedy(
            "Give rare classes the larger weights: divide by the frequency.",
            "counts = torch.bincount(labels).clamp(min=1)  # labels: those of the training set\n"
            "criterion = torch.nn.CrossEntropyLoss(weight=counts.sum() / (len(counts) * counts))",
        ),
        layer=term.layer,
        step=0,
        failure="rare classes that are not learnt",
        tier=Tier.SPECIFIC,
    )


def _weigh(case: Case, slot: TargetsFact, term: LossTerm, major: str, found: tuple[float, int, int]) -> Finding:
    (share, others, right), weigh = found, Weighing()
    weigh.speaks(f"{percent(share)} of the labels are class {major}", 1.5, share, MAJORITY)
    weigh.speaks(
        f"in the later part of the run the model predicts class {major} for nearly everything, and is right for "
        f"{right} of the {others} other labels", 2.3, right, others,
    )  # fmt: skip
    # In the first part of a training the majority comes first; the rare classes may still be learnt.
    if case.loss.still_falling:
        weigh.against(f"the loss still falls, to {case.loss.ending}", 1.5, case.loss.last)
    elif len(case.loss) >= 100:
        weigh.speaks(f"the loss does not fall any more: it ends at {case.loss.ending}", 0.7, case.loss.last)
    # If the inputs do not predict the rare class, the majority is the best guess and no fault.
    fit = slot.fit
    if fit is not None and fit.score < TOLD:
        weigh.against(
            f"the inputs of {fit.samples} samples hardly predict their labels (R^2 {number(fit.score)}), so that "
            "the majority may be the best guess for each", 2.7, fit.score, TOLD,
        )  # fmt: skip
    elif fit is not None and fit.score < WELL and case.loss.last < _entropy(slot):
        # as good as the frequencies alone, or better
        weigh.against(
            f"the inputs predict the labels only weakly (R^2 {number(fit.score)}): for many the majority may be the "
            "best guess", 1.0, fit.score, WELL,
        )  # fmt: skip
    elif fit is not None and fit.z > 6:
        weigh.speaks(f"the inputs predict the labels (R^2 {number(fit.score)})", 0.7, fit.score, TOLD)
    binary = slot.kind != "nll"
    weight = literal(min(100.0, share / max(1e-3, 1 - share)))
    return weigh.conclude(
        f"imbalanced classes: {percent(share)} of the labels are class {major}, and nothing else is predicted",
        Remedy(
            "Weight the rare classes in the loss, or sample them more often.",
            f"criterion = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor({weight}))"
            if binary
            else f"counts = torch.bincount(labels, minlength={max(term.classes, 2)}).clamp(min=1)"
            "  # labels: those of the training set\n"
            "weight = counts.sum() / (len(counts) * counts)\n"
            "criterion = torch.nn.CrossEntropyLoss(weight=weight)",
        ),
        layer=term.layer,
        step=0,
        failure="prediction of the majority",
    )


def _entropy(slot: TargetsFact) -> float:
    """Return the loss of a model that always predicts the class frequencies."""
    if slot.entropy is not None:
        return slot.entropy
    p = min(max(0.5 if slot.mean is None else slot.mean, 1e-9), 1 - 1e-9)
    return -p * math.log(p) - (1 - p) * math.log1p(-p)


CAUSE = Cause(
    module=__name__,
    title="One class dominates labels and predictions",
    tier=Tier.STATISTICAL,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
    place="loss",
)
