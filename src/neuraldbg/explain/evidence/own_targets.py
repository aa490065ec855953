"""Targets that a model makes for itself: a value that is learnt from its own estimates grows by and by.

The losses of an agent whose targets hold the estimates of the next state rise with them, so that an earlier level is
none that the loss could have kept. What tells such targets: they grow over the readings, never by a leap, and the
predictions are of their size at nearly all readings. Targets that come in other units leap, and surprise the model.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from neuraldbg.nouns.facts.loss import LossFact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Fact
    from neuraldbg.nouns.facts.loss import TensorStatistics

KINDS = ("mse", "l1", "smooth_l1", "huber", "squared_error")
MANY = 8
"""Least number of readings."""
GROWN, LEAP = 3.0, 2.5
"""Least growth of the targets over all readings, and the largest from one to the next."""
WITHIN, MOSTLY = 0.4, 0.8
"""Distance of the predictions' size from the targets', relative to it, and the share of the readings within it."""
YOUNG = 8
"""Readings at the beginning, at which the predictions may still be far off."""
STAGE = 1.2
"""Growth from which on an earlier level of the loss is that of other targets."""


def size(x: TensorStatistics | None) -> float | None:
    """Return the root mean square of a tensor; None if it is not known."""
    return None if x is None or x.mean is None or x.std is None else math.hypot(x.mean, x.std)


def growing(facts: Sequence[Fact]) -> tuple[tuple[int, int], ...]:
    """Return the steps between which targets that a model makes for itself have grown; () if there are none."""
    read: list[tuple[int, float, float]] = []
    for fact in facts:
        known = fact.known if fact.key == LossFact.KEY else None
        if not isinstance(known, LossFact) or len(known.terms) != 1 or known.terms[0].kind not in KINDS:
            continue
        target, given = size(known.terms[0].target), size(known.terms[0].input)
        if target and given is not None:
            read.append((fact.step, target, given))
    if len(read) < MANY or read[-1][1] < GROWN * read[0][1]:
        return ()
    if any(later > LEAP * early for (_, early, _), (_, later, _) in itertools.pairwise(read[:-1])):
        return ()
    old = read[YOUNG:]
    if sum(abs(given - target) < WITHIN * target for _, target, given in old) < MOSTLY * len(old):
        return ()
    found, last = [], read[0][1]
    for (since, _, _), (until, target, _) in itertools.pairwise(read):
        if target > STAGE * last:
            found.append((since, until))
            last = target
    return tuple(found)
