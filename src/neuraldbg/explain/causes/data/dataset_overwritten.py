"""The data of the training set are written to in place: each pass changes them further.

What it is
    ``x = self.data[i]`` is no copy: of an array it is a view, and ``x += noise``, ``x -= mean``, ``x[...] = 0`` or a
    transform in place write to the dataset itself. The next pass gets what the last one left, and changes it again:
    noise adds up, data that were normalised are normalised once more, boxes wander, what is masked stays masked.

Symptoms
    The loss falls at first and rises, or stops, as the data go bad, and the evaluation gets worse. Nothing raises, and
    the first epoch is right.

Evidence
    Some numbers of each array that a dataset holds are compared at the beginning of each pass of a DataLoader. They
    differ from pass to pass, are alike from one to the next, and their mean or their spread moves in one direction. An
    array that is exchanged for another one is new data, and so are numbers that have nothing to do with those before.
    What the worker processes of a loader write stays in their copies, and is not seen.

What to do
    Copy the item before it is changed, or write ``x = x + noise``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence.inputs import batches
from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.dataset_writes import DatasetWritesFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.dataset_writes import WrittenArray

TIMES, MOST = 3, 0.8
"""Passes that found other numbers, and their least share of all passes."""
ALIKE = 0.5
"""Least correlation of numbers with what they were a pass before."""
ONE_WAY = 0.8
"""Least share of the passes in which the mean or the spread moves in one direction."""
MOVED, FAR = 1.1, 1.3
"""Ratio of the last spread to the first, or distance of the means in first spreads above 1, from which on data moved,
and surely did."""


def judge(case: Case) -> Finding | None:
    """Weigh the arrays that have the shape of the model's input and whose numbers move from pass to pass."""
    fact = case.run.known(DatasetWritesFact)
    shapes = [math.prod(one.shape[1:]) for one in batches(case) if one.shape]
    found = [(_moved(one), one) for one in (fact.arrays if fact is not None else ()) if _counts(one, shapes)]
    moved, one = max(found, key=lambda pair: pair[0], default=(0.0, None))
    if one is None or moved < MOVED:
        return None
    weigh = Weighing()
    weigh.speaks(
        f"{percent(one.share)} of the numbers of {one.dataset}.{one.name} changed from one pass over the data to the "
        f"next, at {one.changed} of {one.passes - 1} passes, and stayed alike (correlation {number(one.likeness)})",
        3.6 if moved < FAR else 5.0, one.changed, TIMES,
    )  # fmt: skip
    weigh.speaks(
        f"their spread went from {number(one.stds[0])} to {number(one.stds[-1])}, their mean from "
        f"{number(one.means[0])} to {number(one.means[-1])}",
        0.5, one.stds[-1], one.stds[0],
    )  # fmt: skip
    return weigh.conclude(
        f"training data that are written to in place: {one.name} of {one.dataset} changes with each pass",
        Remedy(
            "Copy an item before it is changed: an item of an array or tensor is a view of it.",
            f"x = self.{one.name}[i].copy()  # of a tensor: .clone()",
        ),
        step=max(0, one.first),
        failure=case.trouble.name or "data that drift",
    )


def _counts(one: WrittenArray, shapes: list[int]) -> bool:
    """Return True for an array of inputs that is written to again and again, and keeps something of what it was."""
    often = one.changed >= TIMES and one.changed >= MOST * (one.passes - 1)
    return often and one.likeness >= ALIKE and math.prod(one.item) in shapes


def _moved(one: WrittenArray) -> float:
    """Return how far the spread or the mean went, as a ratio of at least 1; 0 if they went to and fro."""
    found = [0.0]
    for values, ratio in ((one.stds, True), (one.means, False)):
        course = np.asarray(values)
        ways = np.sign(np.diff(course))
        if len(course) < TIMES + 1 or not one.stds[0] > 0 or abs(float(ways.sum())) < (2 * ONE_WAY - 1) * len(ways):
            continue
        if ratio:
            found.append(math.exp(abs(math.log(course[-1] / course[0]))) if course[-1] > 0 else math.inf)
        else:
            found.append(1 + abs(float(course[-1] - course[0])) / one.stds[0])
    return max(found)


CAUSE = Cause(
    module=__name__,
    title="Training data are written to in place",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
    place="forward",
)
