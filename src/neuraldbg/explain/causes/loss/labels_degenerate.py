"""All labels are the same, or use a tiny part of the classes that the model has.

What it is
    Something in the data pipeline wiped the labels: an integer division, a cast to bool, a wrong column, a folder that
    was read as one class. There is nothing to learn but a constant.

Symptoms
    The loss falls to zero within a few steps and accuracy in training is perfect, while the model is useless.

Evidence
    The labels of the whole run are counted, and whether they become one class from a step on: then the loss jumps
    there, since the inputs do not belong to them (if it does not, the data themselves are of one class, which is
    class_imbalance). A loss that makes its labels itself is left alone: the positive pair in column 0 of a contrastive
    loss, ones and zeros for a critic. Few of many classes are common in fine-tuning, so that they are only named where
    something else is wrong too. If the rare classes do occur but are never predicted it is class_imbalance.

What to do
    Check the code that makes the labels, and count them before training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.late_labels import narrowed, one_class_since
from neuraldbg.explain.evidence.wording import number, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.late_labels import Turn
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm
    from neuraldbg.nouns.facts.targets import TargetsFact

BATCHES, SAMPLES = 5, 50
"""Least numbers of batches and of labels that show what the labels of a run are."""
TINY = 0.1
"""Largest share of the declared classes that counts as few."""
MANY = 20
"""Labels for each declared class, after which every class should have occurred."""


def judge(case: Case) -> Finding | None:
    """Weigh the labels of each supervised loss."""
    for slot in targets.slots(case):
        term = targets.supervised(case, slot)
        if term is None or slot.batches < BATCHES or slot.samples < SAMPLES:
            continue
        found = _since(case, slot, term) or (
            _classes(case, slot, term) if slot.kind == "nll" else _numbers(case, slot, term)
        )
        if found is not None:
            return found
    return None


def _since(case: Case, slot: TargetsFact, term: LossTerm) -> Finding | None:
    """Weigh labels that become one class in mid-run, while the inputs stay what they were."""
    if slot.kind != "nll":
        return _numbers_since(case, term)
    turn = one_class_since(case, slot, term)
    if turn is None or not turn.same or turn.share < 1 or not turn.rose:
        return None
    weigh = Weighing()
    turn.weigh(weigh, 5.0)
    if case.loss.last < turn.level:
        weigh.speaks(f"the loss is at {number(case.loss.last)} at the end, as of a constant that is learnt", 0.5)
    return _finish(weigh, term, f"labels that are all the same {turn.when}: class {turn.classes[0]}", turn)


def _numbers_since(case: Case, term: LossTerm) -> Finding | None:
    turn = narrowed(case, term)
    if turn is None or turn.inside > 0 or turn.span > 0:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{turn.when} all targets of the {turn.readings} batches that were read are the same number; before, they "
        f"differed by {number(turn.before)} (standard deviation)", 5.0, 0.0, turn.before,
    )  # fmt: skip
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    return _finish(weigh, term, f"targets that are all the same {turn.when}", turn)


def _classes(case: Case, slot: TargetsFact, term: LossTerm) -> Finding | None:
    classes, distinct, samples = slot.classes, slot.distinct, slot.samples
    weigh, labels = Weighing(), list(slot.histogram)
    if distinct == 1 and classes > 1:
        weigh.speaks(f"all {samples} labels of {slot.batches} batches{case.counted} are class {labels[0]} of {classes}",
                     6.0, 1, 2)  # fmt: skip
        return _finish(weigh, term, f"labels that are all the same: class {labels[0]}")
    if 1 < distinct <= TINY * classes and samples >= MANY * classes and slot.tokens is None:
        used = plural(distinct, "class").replace("classs", "classes")
        weigh.speaks(f"{samples} labels{case.counted} use {used} of {classes}", 2.0, distinct, TINY * classes)
        return _finish(weigh, term, f"labels that use only {distinct} of {classes} classes")
    return None


def _numbers(case: Case, slot: TargetsFact, term: LossTerm) -> Finding | None:
    only = slot.min
    if only is None or only != slot.max:
        return None
    # The TARGETS fact has samples of large targets; the readings of the loss graph have more of them.
    read = [t.target for t in targets.alike(case, term)]
    if any(target is None or target.min != only or target.max != only for target in read):
        return None
    weigh, value = Weighing(), number(only)
    binary = slot.kind in ("bce", "bce_with_logits")
    weigh.speaks(f"all targets of {slot.batches} batches are {value}", 5.0 if binary else 3.4, only)
    return _finish(weigh, term, f"targets that are all the same: {value}")


def _finish(weigh: Weighing, term: LossTerm, sentence: str, turn: Turn | None = None) -> Finding:
    return weigh.conclude(
        sentence,
        Remedy(
            "Count the labels where the data set is made; look for a cast, a division or a wrong column.",
            "print(torch.unique(torch.as_tensor(labels), return_counts=True))",
        ),
        layer=term.layer,
        step=turn.until if turn is not None else 0,
        since=turn.since if turn is not None else None,
        failure="learning of a constant",
    )


CAUSE = Cause(
    module=__name__,
    title="All labels are the same",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
