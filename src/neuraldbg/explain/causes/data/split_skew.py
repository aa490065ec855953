"""Training and evaluation data are preprocessed differently.

What it is
    One of the two transforms lacks a step: the pictures are normalised for training and not for validation, one side
    is divided by 255, the statistics were computed again for the other split.

Symptoms
    Training goes well, validation is bad from the first epoch on, and stays bad, as if the model did not generalise at
    all.

Evidence
    Mean and standard deviation of the inputs are read in both modes over many batches. Augmentation changes them
    little; a forgotten normalisation changes them several times over, and in every single evaluation batch. It is
    judged for inputs with many values a sample, and for evaluation in eval mode now and then: what a generator or an
    agent is fed in between is another matter. Real drift between the two sets looks the same when it is that large.

What to do
    Use one function for the deterministic steps of both transforms, and compare the statistics of one batch of each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Cause
from neuraldbg.explain.evidence.inputs import batches
from neuraldbg.explain.evidence.wording import literal, number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.batches import BatchesFact, Level

PICTURE = 4
"""Number of axes of a batch of images."""
VALUES = 8
"""Least number of values of a sample: curves over a few variables are evaluated outside their data on purpose."""
EXTREME = 30.0
"""Ratio of the standard deviations beyond that of any curve drawn outside its data: then ``FEW`` values are enough."""
FEW = 3
APART = {True: 3.0, False: 5.0}
"""Least ratio of the standard deviations, for images (True) and for other inputs."""
SHIFT = {True: 2.0, False: 5.0}
"""Least distance of the means in standard deviations of the training inputs, for images (True) and for others."""
AGREES = 0.1
"""Largest relative error of mean and standard deviation if one side is the other times a factor plus an offset."""
CHANGED = 0.5
"""Least distance of the factor from 1, or of the offset from 0 in standard deviations."""
CENTRED, UNIT = 0.2, (0.5, 1.6)
"""Largest mean squared mean, and range of the mean variance, of the columns of a standardised table in batches of 16
rows and more: the mean of 16 samples has a variance of 1/16 itself."""
OTHER = 2.5
"""Least ratio of a raw column's variance to 1."""
ALL = 0.8
"""Least share of evaluation passes outside of the range of all training passes."""


def judge(case: Case) -> Finding | None:
    """Weigh the distance between the inputs of evaluation and those of training."""
    for fact in batches(case):
        found = _compare(case, fact)
        if found is not None:
            return found
    return None


def _compare(case: Case, fact: BatchesFact) -> Finding | None:
    train, other, shape = fact.train, fact.eval, fact.shape
    if train is None or other is None or not fact.floating or train.passes < 5 or not train.std > 0:
        return None
    # Small samples and frequent evaluations may differ on purpose.
    bursts, picture = fact.bursts, len(shape) == PICTURE
    ratio = other.std / train.std
    values = FEW if not 1 / EXTREME < ratio < EXTREME else VALUES
    often = bursts > 1 and 4 * bursts > (fact.steps or case.run.steps)
    if math.prod(shape[1:]) < values or often or fact.skewed < ALL:
        return None
    # Levels that are far apart, a factor that explains all four statistics, or another grid of pixel values.
    shift = abs(other.mean - train.mean) / train.std
    far = max(ratio, 1 / ratio if ratio > 0 else math.inf) >= APART[picture] or shift >= SHIFT[picture]
    grids = (fact.grid, fact.grid_eval)
    regridded = grids[0] != grids[1] and all(grids)
    rescaled = _rescaled(train, other)
    if not far and not rescaled and not (picture and regridded):
        return _standardised(case, fact, train, other)
    weigh = Weighing()
    weigh.speaks(
        f"inputs of evaluation have mean {number(other.mean)} and standard deviation {number(other.std)}, those "
        f"of training {number(train.mean)} and {number(train.std)}",
        4.5 if far else 2.5, ratio, APART[picture],
    )  # fmt: skip
    weigh.speaks(f"{percent(fact.skewed)} of the evaluation passes lie outside of all training passes", 0.7,
                 fact.skewed, ALL)  # fmt: skip
    if regridded:
        weigh.speaks(f"pixels lie on the grid {grids[0]!r} in training and {grids[1]!r} in evaluation", 1.5, grids[1])
    if rescaled:
        weigh.speaks(
            f"times {number(rescaled[0])} and plus {number(rescaled[1])}, mean, spread, smallest and largest value of "
            "evaluation become those of training: one side lacks a normalisation", 2.5, rescaled[0], 1.0,
        )  # fmt: skip
    if picture:
        weigh.speaks("they are pictures, for which both sides have the same range", 0.7, len(shape))
    # If the training inputs change as well, the evaluation's need not lie within them.
    if train.wander > 0.3 * train.std:
        weigh.against("the inputs of training wander as well", 2.5, train.wander)
    return weigh.conclude(
        f"evaluation inputs that are preprocessed differently: standard deviation {number(other.std)} instead of "
        f"{number(train.std)}, mean {number(other.mean)} instead of {number(train.mean)}",
        Remedy(
            "Give both sides the same deterministic steps, and check one batch of each.",
            f"# training inputs: mean {literal(train.mean)}, standard deviation {literal(train.std)}\n"
            "for name, loader in (('train', train_loader), ('val', val_loader)):\n"
            "    x = next(iter(loader))[0]\n    print(name, x.mean(), x.std())",
        ),
        step=max(0, fact.first_eval),
        failure=case.trouble.name or "validation that is too bad",
    )


def _standardised(case: Case, fact: BatchesFact, train: Level, other: Level) -> Finding | None:
    """Weigh columns of a table that are standardised on one side, and raw on the other."""
    sides = {"training": train, "evaluation": other}
    clean = [name for name, side in sides.items() if _is_standard(side)]
    raw = [name for name, side in sides.items() if _is_raw(side)]
    if len(clean) != 1 or len(raw) != 1 or fact.skewed < 1:
        return None
    weigh = Weighing()
    one, far = sides[clean[0]], sides[raw[0]]
    weigh.speaks(
        f"the columns of {clean[0]} are standardised: mean variance {number(one.column_variance or 0.0)}, mean squared "
        f"mean {number(one.column_offset or 0.0)}; those of {raw[0]} are not: {number(far.column_variance or 0.0)} and "
        f"{number(far.column_offset or 0.0)}",
        4.3, far.column_variance, one.column_variance,
    )  # fmt: skip
    weigh.speaks("all evaluation passes lie outside of all training passes", 0.7, fact.skewed, 1.0)
    return weigh.conclude(
        f"evaluation inputs that are preprocessed differently: the columns of {clean[0]} are standardised, those of "
        f"{raw[0]} are not",
        Remedy(
            "Standardise both sides by the means and spreads of the training set.",
            "scaler = StandardScaler().fit(x_train)\nx_train, x_val = scaler.transform(x_train), "
            "scaler.transform(x_val)",
        ),
        step=max(0, fact.first_eval),
        failure=case.trouble.name or "validation that is too bad",
    )


def _is_standard(side: Level) -> bool:
    """Return True if the columns of a table have the mean 0 and the variance 1, as far as a batch can show it."""
    offset, variance = side.column_offset, side.column_variance
    return offset is not None and variance is not None and offset < CENTRED and UNIT[0] < variance < UNIT[1]


def _is_raw(side: Level) -> bool:
    """Return True if the columns have means beyond their spreads, and another spread than 1."""
    offset, variance = side.column_offset, side.column_variance
    if offset is None or variance is None or offset < variance:
        return False
    return not 1 / OTHER < variance < OTHER


def _rescaled(train: Level, other: Level) -> tuple[float, float] | None:
    """Return the factor and offset that map the evaluation's inputs to those of training: smallest and largest value
    give the two, mean and standard deviation must agree. None if they do not, or if the two sides are nearly equal.
    """
    width = other.high - other.low
    if not width > 0:
        return None
    times = (train.high - train.low) / width
    plus = train.low - times * other.low
    agrees = abs(times * other.std / train.std - 1) < AGREES
    agrees = agrees and abs(times * other.mean + plus - train.mean) < AGREES * train.std
    return (times, plus) if agrees and (abs(times - 1) > CHANGED or abs(plus) > CHANGED * train.std) else None


CAUSE = Cause(
    module=__name__,
    title="Training and evaluation data preprocessed differently",
    tier=Tier.SPECIFIC,
    explains=frozenset(),
    judge=judge,
    page=__doc__ or "",
    place="evaluation",
)
