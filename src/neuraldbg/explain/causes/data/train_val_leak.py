"""Samples that are used for validation were also trained on.

What it is
    The split is not clean: it was drawn again at each start and the weights were loaded, duplicates lie on both sides,
    or the index ranges overlap. The validation score then measures memory.

Symptoms
    Validation is too good, often as good as training, and the model fails on new data.

Evidence
    Samples are recognised by a fingerprint of their values, in training and in evaluation. A pass of the evaluation
    that holds both, samples that were trained on and samples that never were, shows that the sets overlap. Nothing is
    said of a program that evaluates its training set, or all of its data, on purpose: such an evaluation reads the very
    dataset object that is trained on, and meets most of its samples. Where the only evaluation reads a dataset of its
    own in which every sample was trained on, the cause is named with less confidence. It is judged only once the
    training data repeats, so that all of it is known, and only where samples are distinct. Augmented samples cannot be
    recognised: silence is no proof.

What to do
    Split by an identity (file, patient, user) once, store the split, and check that the parts are disjoint.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.inputs import agreed, batches
from neuraldbg.explain.evidence.wording import percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.experiment import TargetInside

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.batches import BatchesFact, Overlap

REPEATS = 0.9
"""Least share of the newest training samples that came before, for the training data to be known."""
ALIKE = 0.01
"""Largest share of samples that occur twice in their batch; above it, equal values are no evidence of identity."""
NUMBERS = 8
"""Number of values of a sample from which two samples are equal only by copying, if none were equal by chance."""
COPIED = 0.2
"""As ``ALIKE``, for such samples: a rare class that is sampled often occurs twice in a batch."""
LOW, HIGH = 0.02, 0.8
"""Range of the share of one evaluation set that was trained on, if the overlap is a mistake."""
WHOLE = 0.5
"""Share of the training data in one evaluation from which it is evaluated on purpose."""
ALL = 0.98
"""Share of an evaluated dataset that was trained on, from which it is the training data."""
MANY = 100
"""Least number of shared samples for judging a whole dataset."""
CHANCE = 3.0
"""Ratio to the share of training samples that equal another one, which overlap by chance does not reach."""
FEW = 10
"""Least number of shared samples."""


def judge(case: Case) -> Finding | None:
    """Weigh a target among the inputs, then the overlap of training and evaluation samples."""
    inside = _inside(case)
    if inside is not None:
        return inside
    for fact in batches(case):
        found = _overlap(case, fact)
        if found is not None:
            return found
    return None


def _inside(case: Case) -> Finding | None:
    """Weigh a column of the input that equals the target in every batch read."""
    found = agreed(case, TargetInside, lambda one: one.inside)
    if found is None or found.column is None:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"column {found.column} of the {found.columns} columns of the input equals the target in each of the "
        f"{found.rows} samples of a batch", 6.0, found.column,
    )  # fmt: skip
    return weigh.conclude(
        f"target among the inputs: column {found.column} of the table is what the model is to predict",
        Remedy("Take the target out of the inputs, and whatever is computed from it.",
               f"x = torch.cat([x[:, :{found.column}], x[:, {found.column + 1}:]], 1)"),
        step=0,
        failure=case.trouble.name or "validation that is too good",
    )  # fmt: skip


def _overlap(case: Case, fact: BatchesFact) -> Finding | None:
    overlap = fact.overlap
    if overlap is None:
        return None
    # Only a validation set that holds some training samples beside others is a mistake.
    if overlap.shared < CHANCE * overlap.natural * overlap.samples:
        return None  # small discrete samples are equal by chance, within training as well
    found = _dataset(case, fact, overlap)
    if found is not None or not overlap.mixed:
        return found
    bursts, steps = fact.bursts, max(1, fact.steps or case.run.steps)
    validates = bursts == 1 or (overlap.again > 0 and 4 * bursts <= steps)
    if overlap.recall > WHOLE:
        return None  # all of the data is evaluated, or the training set is too
    if not validates or overlap.seen_before < REPEATS or _alike(fact, overlap):
        return None
    clean = overlap.passes - overlap.pure
    shared, samples = overlap.mixed_shared, overlap.mixed_samples
    part = overlap.shared / max(1, overlap.samples)
    if shared < FEW or not LOW <= shared / samples <= HIGH or clean < 1:
        return None
    many = overlap.mixed >= 3 or samples >= 100
    weigh = Weighing()
    weigh.speaks(
        f"{_count(overlap.mixed)} of the evaluation hold samples that were trained on "
        f"({percent(shared / samples)}) and samples that were not",
        5.5 if many else 3.5, shared / samples, LOW,
    )  # fmt: skip
    weigh.speaks(
        f"{percent(overlap.seen_before)} of the newest training samples had come before, so that the training data "
        "is known", 0.7, overlap.seen_before, REPEATS,
    )  # fmt: skip
    if overlap.pure:
        weigh.against(f"other evaluation passes hold training samples only, as on purpose ({overlap.pure})", 0.7,
                      overlap.pure)  # fmt: skip
    return _conclude(case, weigh, part)


def _alike(fact: BatchesFact, overlap: Overlap) -> bool:
    """Return True if different samples are often equal. Those of many measured numbers never are by chance; equal ones
    among them were copied.
    """
    if fact.floating and math.prod(fact.shape[1:]) >= NUMBERS and not overlap.natural:
        return overlap.twice > COPIED
    return overlap.twice > ALIKE


def _conclude(case: Case, weigh: Weighing, part: float) -> Finding:
    return weigh.conclude(
        f"training samples in the validation data: {percent(part)} of what was evaluated had been trained on",
        Remedy(
            "Split once by a stable identity, and check that the parts are disjoint.",
            "train, val = set(train_ids), set(val_ids)\nassert train.isdisjoint(val), f'{len(train & val)} in both'",
        ),
        step=0,
        failure=case.trouble.name or "validation that is too good",
    )


def _dataset(case: Case, fact: BatchesFact, overlap: Overlap) -> Finding | None:
    """Weigh an evaluated dataset that is another object than the training datasets and has their samples."""
    if overlap.seen_before < REPEATS or _alike(fact, overlap):
        return None
    others = [one for one in overlap.datasets if not one.trained]
    part, weigh = (others[0].shared / max(1, others[0].samples)) if len(others) == 1 else 0.0, Weighing()
    if len(others) != 1 or others[0].shared < MANY or others[0].bursts < 2:
        return None
    if LOW <= part <= HIGH and overlap.recall <= WHOLE:
        weigh.speaks(
            f"the dataset that is evaluated holds samples that were trained on ({percent(part)}) beside samples that "
            "never were", 5.5, part, LOW,
        )  # fmt: skip
    elif part > ALL and len(overlap.datasets) == 1 and fact.bursts == others[0].bursts:
        weigh.speaks("every sample of the dataset that is evaluated was trained on", 2.0, part, ALL)
        weigh.speaks("it is another dataset object than the one trained on, and nothing else is evaluated", 1.0)
    else:
        return None
    return _conclude(case, weigh, part)


def _count(batches: int) -> str:
    return "1 batch" if batches == 1 else f"{batches} batches"


CAUSE = Cause(
    module=__name__,
    title="Validation samples in the training data",
    tier=Tier.CERTAIN,
    explains=frozenset(),
    judge=judge,
    page=__doc__ or "",
    place="evaluation",
)
