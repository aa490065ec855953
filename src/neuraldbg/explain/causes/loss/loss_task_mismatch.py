"""The loss belongs to another kind of task: a squared error on class ids, a yes-or-no loss for one of many classes.

What it is
    Class ids are names, not amounts: class 7 is not nearer to 8 than to 0. A squared error treats them as amounts, a
    binary cross entropy takes them for probabilities, and a cross entropy with a row of several ones asks for several
    classes at once from a distribution that sums to 1.

Symptoms
    The loss falls to what predicting the mean id gives, or below zero (binary cross entropy with targets above 1), and
    accuracy stays poor though the loss moves.

Evidence
    Values and shapes of the targets are read from the graph of the loss. C scores compared with one column of ids from
    0 to C - 1, or ids of three and more classes in a binary cross entropy, are facts. One output regressed on small
    integers may be a count or a rating. It is named only where all integers occur about equally often and, besides, one
    of two things holds: nothing is learnt, or the inputs of neighbouring integers are no more alike than those of
    distant ones, as they would be for counts and ratings. A binary cross entropy on one-hot rows is a choice and no
    fault. Labels such as -1 and 1, or 0 and 255, are target_out_of_range.

What to do
    Cross entropy with one score per class for one of many; binary cross entropy for several at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm
    from neuraldbg.nouns.facts.targets import TargetsFact

CROSS_ENTROPY = "loss = torch.nn.functional.cross_entropy(scores, target.long())  # scores: (N, classes)"
BCE = "loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, target.float())"
ORDERED = 0.3
"""Correlation between distances of numbers and distances of their inputs, below which the numbers have no order."""
TOLD = 10.0
"""Standard deviations of shuffled targets above which inputs predict the targets well."""
BY_HAND = ["neg", "sum", "mul", "logsoftmax"]


def judge(case: Case) -> Finding | None:
    """Weigh values and shapes of the targets of each loss."""
    for slot in targets.slots(case):
        term = targets.term_of(case, slot)
        if term is not None:
            found = _ids_for_numbers(case, slot, term) or _ids_for_binary(slot, term)
            if found is not None:
                return found
    for term in case.terms:
        found = _several_at_once(case, term)
        if found is not None:
            return found
    return None


def class_ids(slot: TargetsFact, least: int = 3) -> int:
    """Return the number of class ids 0, 1, ... among the targets, without a gap; 0 if they are something else."""
    if not slot.integral or len(slot.values) < least or slot.min != 0:
        return 0
    return len(slot.values) if slot.max == len(slot.values) - 1 else 0


def one_each(term: LossTerm | None) -> bool:
    """Return True if a target is one number for each sample or pixel: rows of several numbers are amounts, not ids."""
    shape = term.target_shape if term is not None else ()
    return len(shape) != 2 or shape[1] == 1


def _finish(weigh: Weighing, term: LossTerm, sentence: str, text: str, code: str) -> Finding:
    return weigh.conclude(
        sentence,
        Remedy(text, code),
        layer=term.layer,
        step=0,
        failure="learning of something else than the task",
    )


def _ids_for_numbers(case: Case, slot: TargetsFact, term: LossTerm) -> Finding | None:
    if term.kind not in targets.REGRESSION:
        return None
    # One score per class against one column of ids is proof; a single output needs signs that its numbers are names.
    shapes, classes, weigh = term.operand_shapes, class_ids(slot), Weighing()
    width = term.input_shape[-1] if len(term.input_shape) > 1 else 1  # a single output, squeezed
    column = len(shapes) > 1 and len(shapes[0]) == len(shapes[1]) == 2 and shapes[1][-1] == 1 < shapes[0][-1]
    low, high = slot.min, slot.max
    if column and slot.integral and low is not None and high is not None and low >= 0 and width / 2 <= high < width:
        weigh.speaks(
            f"{width} outputs are all compared with one column of whole numbers from 0 to {number(high)}",
            6.5, str(list(shapes[0])), str(list(shapes[1])),
        )  # fmt: skip
    elif classes and width == 1 and even(slot) and (not case.learned or _unordered(slot)):
        weigh.speaks(
            f"the targets are the whole numbers 0 to {classes - 1}, about equally often, as ids of classes are", 2.4,
            classes, 3,
        )  # fmt: skip
        order = slot.fit.ordinal if slot.fit is not None else None
        if order is not None and _unordered(slot):
            weigh.speaks(
                "inputs of neighbouring numbers are no more alike than those of distant ones (correlation "
                f"{number(order)}), though the inputs predict the numbers: they are names and no amounts",
                2.2, order, ORDERED,
            )  # fmt: skip
        elif order is not None and order > 2 * ORDERED:
            weigh.against("inputs of neighbouring numbers are alike, as with counts and ratings", 2.5)
        if case.trouble.any:
            weigh.speaks(case.trouble.phrase, 1.0)
        if any(leaf.image for leaf in case.leaves.values()):
            weigh.speaks("the inputs are images", 0.8, "image")
    else:
        return None
    return _finish(
        weigh, term, f"class ids given to {term.kind}, which takes them for amounts",
        "Use one score per class and the cross entropy.", CROSS_ENTROPY,
    )  # fmt: skip


def _unordered(slot: TargetsFact) -> bool:
    """Return True if inputs predict the numbers, and near numbers have no nearer inputs than distant ones."""
    fit = slot.fit
    return fit is not None and fit.z > TOLD and fit.ordinal is not None and fit.ordinal < ORDERED


def even(slot: TargetsFact) -> bool:
    """Return True if all values are equally frequent within a factor of 1.5."""
    counts = list(slot.values.values())
    return bool(counts) and max(counts) <= 1.5 * min(counts)


def _ids_for_binary(slot: TargetsFact, term: LossTerm) -> Finding | None:
    if term.kind not in ("bce", "bce_with_logits"):
        return None
    classes = class_ids(slot)
    if not classes or not one_each(term):
        return None
    weigh = Weighing()
    weigh.speaks(f"the targets of {term.kind} are the whole numbers 0 to {classes - 1}", 5.5, classes, 2)
    weigh.speaks(f"{percent(slot.outside_unit)} of them are no probabilities", 1.0, slot.outside_unit, 0.0)
    return _finish(
        weigh, term, f"ids of {classes} classes given to {term.kind}, which answers yes or no",
        "Use one score per class and the cross entropy.", CROSS_ENTROPY,
    )  # fmt: skip


def _several_at_once(case: Case, term: LossTerm) -> Finding | None:
    """Weigh target rows with several ones in a cross entropy that is averaged over all rows, as ``F.cross_entropy``."""
    soft = term.soft_target
    ops = [op for op in case.loss_ops if op != "div"]
    if soft is None or not soft.binary or not soft.many > 0.2 or ops[:4] != BY_HAND or len(case.terms) != 1:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{percent(soft.many)} of the target rows hold more than one 1 (at most {number(soft.sum_high)}), and a "
        "softmax shares out a single 1", 5.0, soft.many, 0.0,
    )  # fmt: skip
    return _finish(
        weigh, term, "rows of several labels given to a cross entropy, which expects one class",
        "Use a binary cross entropy, which answers each label by itself.", BCE,
    )  # fmt: skip


CAUSE = Cause(
    module=__name__,
    title="Loss does not fit the task",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
)
