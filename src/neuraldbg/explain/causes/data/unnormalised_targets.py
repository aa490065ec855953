"""Regression targets are far from zero mean and unit scale.

What it is
    The network starts with outputs near zero, but has to give values in the thousands, or for small differences on
    a large offset. Nearly all of the gradient goes into moving the last layer there.

Symptoms
    A huge loss at the beginning; then a blow-up with SGD, or a very slow descent with an adaptive optimizer, which
    moves the last bias by about the learning rate at each step.

Evidence
    Mean and standard deviation of the targets are read from the graph of the loss, for losses that compare numbers
    (MSE, L1, Huber). It is the cause when the run is in trouble and the loss has not even reached the variance of
    the targets, which is what predicting their mean would give. A model that gets below it has coped with the
    scale. It did harm
    all the same where a good part of the run went by before the outputs had got there.

What to do
    Standardise the targets, and undo it when predictions are used.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.cause import BLOW_UP, STALL, UNITS, Cause
from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.late_changes import began, weigh_change
from neuraldbg.explain.evidence.own_targets import size
from neuraldbg.explain.evidence.wording import literal, number
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.change_points import ChangePoint
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.loss import LossTerm

REGRESSION = ("mse", "l1", "smooth_l1", "huber", "squared_error")
LARGE = 10.0
"""rms of the targets above which they are far from unit scale."""
SMALL = 1e-3
"""rms below which targets are too small."""
EXTREME = 100.0
"""rms beyond which targets are in raw units."""
SPENT = (30, 0.1)
"""Least number of steps, and share of the run, until the loss has halved, spent on reaching the targets' scale."""
ALONG = 0.3
"""Distance of the predictions' size from the targets', relative to it, up to which they have come along."""
OFFSET = 10.0
"""|mean| / std beyond which the offset dominates."""


def judge(case: Case) -> Finding | None:
    """Weigh targets that came in other units from a step on, then the scale of the targets of each regression loss."""
    if case.growing_targets:
        return None  # the model makes them for itself
    change = case.change("targets")
    if change is not None and len(case.terms) == 1 and case.terms[0].kind in REGRESSION:
        return _late(case, case.terms[0], change)
    for term in case.terms:
        target = term.target
        if term.kind not in REGRESSION or target is None or target.mean is None or target.std is None:
            continue
        found = _weigh(case, term, target.mean, target.std)
        if found is not None:
            return found
    return None


def _late(case: Case, term: LossTerm, change: ChangePoint) -> Finding:
    weigh = Weighing()
    weigh_change(case, weigh, change)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5)
    if (both := _followed(case, term, change)) is not None:
        weigh.against(
            f"at the first reading after it the predictions were of that size as well, {number(both[1])} beside "
            f"{number(both[0])}: the targets follow the model's own outputs", 4.0, both[1], both[0],
        )  # fmt: skip
    return weigh.conclude(
        f"targets that are unlike those before: {change.said}",
        Remedy(
            "Bring all targets into one unit before the training, with the statistics of the first ones.",
            "print(y.mean(), y.std())  # before and after that step",
        ),
        layer=term.layer,
        step=began(case, change),
        since=change.since,
        failure=case.trouble.name or "badly scaled targets",
    )


def _followed(case: Case, term: LossTerm, change: ChangePoint) -> tuple[float, float] | None:
    """Return the root mean squares of targets and predictions at the first reading after a change, if the predictions
    have already come along: targets in other units are a surprise to a model. None if they have not, or were not read.
    """
    for step, one in targets.readings(case):
        if step < change.until or one.kind != term.kind or one.target is None or one.input is None:
            continue
        of_target, of_input = size(one.target), size(one.input)
        if of_target is None or of_input is None:
            continue
        return (of_target, of_input) if abs(of_input - of_target) < ALONG * of_target else None
    return None


def _weigh(case: Case, term: LossTerm, mean: float, std: float) -> Finding | None:
    rms, weigh = math.hypot(mean, std), Weighing()
    if rms > LARGE or 0 < rms < SMALL:
        edge = LARGE if rms > LARGE else SMALL
        weigh.speaks(f"the targets have a mean of {number(mean)} and a standard deviation of {number(std)}",
                     min(1.8 + abs(math.log10(rms / edge)), 4.0), rms, edge)  # fmt: skip
    if std > 0 and abs(mean) / std > OFFSET and abs(mean) > 1:
        weigh.speaks(f"their offset is {number(abs(mean) / std)} times their spread", 1.0, abs(mean) / std, OFFSET)
    if not weigh.items:
        return None
    # A loss below the variance has learnt more than the mean, so the training copes with the scale.
    variance, squared = std * std, term.kind in ("mse", "squared_error")
    best = case.loss.best if len(case.loss) else float("nan")
    if squared and term.reduction == "mean" and math.isfinite(best) and variance > 0:
        if best < 0.7 * variance:
            said = f"the loss went to {case.loss.lowest}, below the variance of the targets: it copes with their scale"
            weigh.against(said, 0.5 if _slow_start(case, rms, weigh) else 4.0, best, variance)
        elif len(case.loss) >= 10:
            said = f"the loss never got below the variance of the targets ({number(variance)}); its lowest level"
            weigh.speaks(f"{said} was {case.loss.lowest}", 1.5, best, variance)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.5)
    elif case.learned:
        weight = 1.0 if not (squared and best > variance) else 0.2
        weigh.against(f"the loss falls well, {case.loss.course}", weight, case.loss.relative)
    return weigh.conclude(
        f"targets that are not normalised: mean {number(mean)}, standard deviation {number(std)}",
        Remedy(
            "Standardise the targets for training and undo it when predicting.",
            f"target = (target - {literal(mean)}) / {literal(std or 1.0)}\n"
            f"# later: prediction = model(x) * {literal(std or 1.0)} + {literal(mean)}",
        ),
        layer=term.layer,
        step=0,
        failure=case.trouble.name or "badly scaled targets",
    )


def _slow_start(case: Case, rms: float, weigh: Weighing) -> bool:
    """Weigh a large part of the run that was spent on moving the outputs to the targets' scale."""
    loss = case.loss.finite
    if rms <= EXTREME or not len(loss) or not 0.3 * rms**2 < case.loss.initial < 3 * rms**2:
        return False  # the loss has other terms, or other faults
    values = np.convolve(loss.values, np.ones(5) / 5, mode="valid") if len(loss) >= 5 else loss.values
    below = np.flatnonzero(values < 0.5 * case.loss.initial)
    spent = int(below[0]) if len(below) else len(values)
    if spent < SPENT[0] or spent < SPENT[1] * len(loss):
        return False
    weigh.speaks(f"the first loss ({number(case.loss.initial)}) is the mean square of the targets: the outputs are "
                 "tiny compared with them", 0.5, case.loss.initial)  # fmt: skip
    weigh.speaks(f"{spent} of {len(loss)} steps went by before the loss had halved", 1.5, spent, SPENT[0])
    return True


CAUSE = Cause(
    module=__name__,
    title="Targets not normalised",
    tier=Tier.SPECIFIC,
    explains=BLOW_UP | STALL | UNITS,
    judge=judge,
    page=__doc__ or "",
    place="loss",
    entails=frozenset({"gradient_conflict"}),
)
