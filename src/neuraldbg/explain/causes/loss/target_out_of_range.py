"""Targets lie outside the range of the loss: class ids beyond the last class, labels that are no probabilities.

What it is
    A cross entropy over C classes takes ids from 0 to C - 1 and one id that it ignores. A binary cross entropy takes
    probabilities from 0 to 1, a soft-margin loss -1 and 1. Other values end the script, or are computed with and mean
    nothing: with labels of 255 a binary cross entropy has no minimum.

Symptoms
    "Target 10 is out of bounds", a device-side assert on a GPU, a loss that falls far below zero, or NaN where a batch
    holds nothing but ignored ids.

Evidence
    Labels are counted over the run and compared with the loss that they go to; where the script ended with an error,
    its message names the label. Ids 0, 1, 2, ..., one for each sample, in a binary cross entropy are
    loss_task_mismatch; whole numbers for each of several outputs are amounts, such as grey values. Labels softened on
    purpose to a little beyond 0 and 1 are left alone. Batches in which everything is ignored may also come from a
    mask that is too strict, which is loss_mask_error.

What to do
    Map the labels: ids from 0, -1/1 to 0/1, 0/255 to 0/1. Give the model as many outputs as there are classes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.causes.loss.loss_task_mismatch import class_ids, one_each
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.wording import number, percent, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm
    from neuraldbg.nouns.facts.targets import TargetsFact

SOFT = (-0.3, 1.3)
"""Range of a critic's labels that are softened on purpose."""
CLASS_ID = re.compile(r"Target (-?\d+) is out of bounds")
BINARY = ("all elements of target should be between 0 and 1", "target_val >= zero && target_val <= one")
DEVICE = "device-side assert triggered"
UNLABELLED, BATCHES = 0.9, 20
"""Share of sequences without any label, and number of batches, from which that is no accident: masked language models,
which predict every seventh token, leave few sequences without one."""
FAILURE = "meaningless labels"


def judge(case: Case) -> Finding | None:
    """Weigh the error that ended the script, then the labels of each loss."""
    crashed = targets.raised(case, "is out of bounds", *BINARY, DEVICE)
    if crashed:
        found = _crash(case, crashed)
        if found is not None:
            return found
    for slot in targets.slots(case):
        found = _labels(slot, targets.term_of(case, slot)) or _ignored(case, slot) or _nearly_all(slot)
        if found is not None:
            return found
    return None


def _crash(case: Case, message: str) -> Finding | None:
    weigh, match, step = Weighing(), CLASS_ID.search(message), max(0, case.run.steps)
    classes = next((term.classes for term in case.terms if term.kind in ("cross_entropy", "nll")), 0)
    last = classes or "scores.size(1)"
    remedy = Remedy(
        "Give the model one output per class, and number the classes from 0.",
        f"target = target - 1  # before the loss, if they run from 1 to {last}\n"
        f"assert 0 <= int(target.min()) and int(target.max()) < {last}",
    )
    if match is not None:
        label = int(match.group(1))
        weigh.speaks(f"the script ended with: {message}", 7.0, label, classes or None)
        if classes:
            weigh.speaks(f"the loss has {plural(classes, 'class')}, so the largest id is {classes - 1}", 0.5, classes)
        sentence = f"a class id of {label}, which the loss has no class for"
    elif DEVICE in message:
        weigh.speaks(f"the script ended with: {message}", 2.0, "assert")
        weigh.against("such an assert may also come from an embedding or another index", 0.5)
        sentence = "an index on the GPU that was out of bounds, such as a class id that the loss has no class for"
    elif any(text in message for text in BINARY):
        weigh.speaks(f"the script ended with: {message}", 7.0, "outside [0, 1]")
        sentence = "labels outside [0, 1] given to a binary cross entropy"
        remedy = Remedy("Map the labels to 0 and 1.", "target = (target > 0).float()  # for -1/1 and for 0/255")
    else:
        return None
    return weigh.conclude(sentence, remedy, step=step, failure="failed loss")


def _labels(slot: TargetsFact, term: LossTerm | None) -> Finding | None:
    """Weigh labels that are no probabilities in a binary cross entropy, and labels 0/1 in a loss that expects -1/1."""
    kind, low, high, weigh = slot.kind, slot.min, slot.max, Weighing()
    if low is None or high is None:
        return None
    # Class ids have a cause of their own (loss_task_mismatch), and slightly softened labels are usual.
    layer = term.layer if term is not None else None
    if kind in ("bce", "bce_with_logits") and not (class_ids(slot) and one_each(term)):
        share = slot.outside_unit
        if share < 0.01 or (low >= SOFT[0] and high <= SOFT[1]):
            return None
        weigh.speaks(
            f"{percent(share)} of the labels of {kind} lie outside [0, 1]: they reach from {number(low)} to "
            f"{number(high)}", 6.5, high if high > 1 else low, 1.0,
        )  # fmt: skip
        code = "target = (target > 0).float()" if low < 0 or high > 2 else f"target = target - {number(low)}"
        return weigh.conclude(
            f"labels from {number(low)} to {number(high)} given to a binary cross entropy, which takes 0 to 1",
            Remedy("Map the labels to 0 and 1.", code),
            layer=layer, step=0, failure=FAILURE,
        )  # fmt: skip
    if kind == "soft_margin" and set(slot.values) == {"0", "1"}:
        weigh.speaks("the labels of soft_margin_loss are 0 and 1, and those of 0 have no gradient at all", 6.5, 0.0)
        return weigh.conclude(
            "labels 0 and 1 given to a margin loss, which takes -1 and 1",
            Remedy("Map 0 to -1.", "target = 2 * target - 1"), layer=layer, step=0, failure=FAILURE,
        )  # fmt: skip
    return None


def _ignored(case: Case, slot: TargetsFact) -> Finding | None:
    """Weigh batches in which every label is the ignored id."""
    empty, batches, first = slot.empty, slot.batches, slot.first_empty
    if not empty or first is None:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"all labels of {plural(empty, 'batch')} of {batches}{case.counted} equal the ignored id {slot.ignore}".replace(
            "batchs", "batches"
        ), 2.0, empty, 0,
    )  # fmt: skip
    if case.origin is not None and abs(case.origin.step - first) <= 1:
        weigh.speaks(
            f"the first such batch came at step {first}, where the loss became NaN: a mean of nothing", 4.5, first
        )
    elif empty == batches:
        weigh.speaks("no label of the whole run counts", 4.5, empty, batches)
    else:
        weigh.against("the loss stays finite in these batches", 4.0, empty)
    return weigh.conclude(
        "batches in which every label is ignored",
        Remedy("Leave out such batches, or correct ignore_index.",
               f"if (target != {slot.ignore}).any():\n    loss.backward()"),
        step=first, failure=case.trouble.name or FAILURE, equivalent=("loss_mask_error",),
    )  # fmt: skip


def _nearly_all(slot: TargetsFact) -> Finding | None:
    """Weigh a run in which most sequences have no label that counts."""
    rows, ignored = slot.tokens.unlabelled_rows if slot.tokens is not None else 0.0, slot.ignored
    if rows < UNLABELLED or slot.batches < BATCHES:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{percent(rows)} of the sequences hold no label that counts: all equal the ignored id {slot.ignore}",
        4.2, rows, UNLABELLED,
    )  # fmt: skip
    weigh.speaks(f"{percent(ignored)} of all labels are ignored", 0.5, ignored)
    return weigh.conclude(
        "sequences in which nearly all labels are the ignored one",
        Remedy("Check where labels are set to the ignored id; leave out sequences without any.",
               f"print((target != {slot.ignore}).sum(1))  # labels that count, by sequence"),
        step=0, failure="learning from a few labels", equivalent=("loss_mask_error",),
    )  # fmt: skip


CAUSE = Cause(
    module=__name__,
    title="Targets outside the range of the loss",
    tier=Tier.CERTAIN,
    explains=BLOW_UP | STALL | UNITS,
    judge=judge,
    entails=frozenset({"loss_task_mismatch"}),
    page=__doc__ or "",
)
