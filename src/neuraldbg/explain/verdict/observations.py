"""The unusual numbers of a run that belong to no named cause, beside those of sound trainings.

``ordinary.json`` has the 1%, 50% and 99% quantiles of each quantity over the sound programs of the corpus on which
confidences are fitted; ``make accuracy`` writes it. A quantity is an observation where it lies clearly beyond them. It
is no alarm: the verdict does not look at it.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.checked_values import CheckedValues
from neuraldbg.explain.evidence.quantities import WORDS, quantities
from neuraldbg.explain.evidence.wording import number
from neuraldbg.explain.verdict.ranking import CREDIBLE
from neuraldbg.explain.verdict.shipped_numbers import parsed, text_of
from neuraldbg.nouns import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns import Hypothesis

FILE = "ordinary.json"
SCHEMA = "neuraldbg.ordinary/1"
FEW = 20
"""Sound trainings with a quantity from which it has limits."""
RARE = 0.01
"""Share of sound trainings beyond each limit: some of them are in the corpus because they look faulty."""
BEYOND = 0.25
"""Distance beyond the limit, in distances of the limit from the median, from which a value is unusual."""
LEAST = math.log(3)
"""Smallest logarithm of the ratio of an unusual value to the limit."""


class Ordinary(CheckedValues):
    """The limits of ``ordinary.json``, validated when they are read."""

    provenance: dict[str, object]
    """Date, command and programs with which they were measured."""
    trainings: dict[str, int]
    """Sound trainings with each quantity."""
    low: dict[str, float]
    """Value of each quantity below which one in a hundred of them lies."""
    median: dict[str, float]
    """Median of each quantity."""
    high: dict[str, float]
    """Value of each quantity above which one in a hundred of them lies."""


def observations(case: Case, hypotheses: Sequence[Hypothesis]) -> tuple[Observation, ...]:
    """Return what is unusual in a run, the most unusual first, without what credible causes are about: the quantities
    of their layers, and those of their categories.
    """
    named = [one for one in hypotheses if one.confidence >= CREDIBLE]
    taken = {one.category for one in named}
    ordinary = measured()
    found = []
    for one in quantities(case):
        words = WORDS[one.id]
        if words.category in taken or (one.layer is not None and one.layer in {each.layer for each in named}):
            continue
        limit = _limit(ordinary, one.id, one.value, low=words.low)
        if limit is None:
            continue
        side, beyond = limit
        said = words.said.format(number(one.value))
        if one.layer is not None:
            said = f"in layer {one.layer}, {said}"
        found.append(
            Observation(said, one.id, one.value, side, ordinary.trainings[one.id], beyond, one.layer, one.step)
        )
    return tuple(sorted(found, key=lambda one: -one.beyond))


def _limit(ordinary: Ordinary, id_: str, value: float, *, low: bool) -> tuple[float, float] | None:
    """Return the limit that a value lies beyond, and by how much; None if it is usual, or if too little is known."""
    if ordinary.trainings.get(id_, 0) < FEW:
        return None
    middle = math.log(ordinary.median[id_])
    for limit in (ordinary.high[id_], *([ordinary.low[id_]] if low else [])):
        span = math.log(limit) - middle
        beyond = (math.log(value) - math.log(limit)) * (1 if limit == ordinary.high[id_] else -1)
        if beyond >= LEAST and beyond >= BEYOND * abs(span):
            return limit, beyond / max(abs(span), LEAST)
    return None


def limits(cases: Iterable[Case], provenance: Mapping[str, object]) -> str:
    """Return the text of ``ordinary.json`` for sound trainings."""
    values: dict[str, list[float]] = {}
    trainings: Counter[str] = Counter()
    for case in cases:
        found = quantities(case)
        trainings.update({one.id for one in found})
        for one in found:
            values.setdefault(one.id, []).append(one.value)
    kept = {id_: np.asarray(of) for id_, of in sorted(values.items()) if trainings[id_] >= FEW}

    def each(read: Callable[[npt.NDArray[np.float64]], Any]) -> dict[str, float]:
        return {id_: float(f"{float(read(of)):.4g}") for id_, of in kept.items()}

    body = {
        "schema": SCHEMA,
        "provenance": dict(provenance),
        "trainings": {id_: trainings[id_] for id_ in kept},
        "low": each(lambda of: np.quantile(of, RARE)),
        "median": each(np.median),
        "high": each(lambda of: np.quantile(of, 1 - RARE)),
    }
    return json.dumps(body, indent=2) + "\n"


def parse(text: str) -> Ordinary:
    """Parse the limits; a damaged file raises ConfigError."""
    return parsed(Ordinary, text, FILE, SCHEMA)


@functools.cache
def measured() -> Ordinary:
    """Return the limits that came with the package."""
    return parse(text_of(FILE))
