"""Metrics of the program's own beside the training loss: those that do not follow it.

A record enters; sentences about metrics leave that stay where they were, or get worse, while the training loss falls.
Which way a metric should move is known by its name, of well-known ones alone; nothing is said of any other. Levels are
medians, and are compared with the metric's own noise, as those of the loss are (``loss_curve.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.loss_curve import FEW, LossSummary
from neuraldbg.explain.evidence.metric_meanings import ROSE, WORSE, Meaning, meaning_of
from neuraldbg.explain.evidence.wording import number
from neuraldbg.nouns import METRIC, Series, metric_names

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.explain.evidence.symptom import Symptoms

    Floats = npt.NDArray[np.float64]

ENOUGH = 5
"""Values that a metric must have."""
FELL = 0.2
"""Share of its level by which the training loss must fall between the first and the last value of a metric."""
STILL = 0.02
"""Share of the best value that a metric which stays where it was may move by, and that its levels may be unsure by."""
NOISY = 0.04
"""Share of the best value that the noise of such a metric may have: about that of an accuracy over 100 samples."""
AT_BEST = 0.95
"""Share of the best value from which a metric has no room to rise."""
SURE = 4.0
"""Standard errors by which a level must lie beyond another."""
BESIDE = 0.3
"""Weight of such a metric for a cause that it fits: it fits many, and is no more than a hint."""
_MEDIAN = 1.2533
"""Standard error of a median over that of a mean, sqrt(pi / 2): of normal noise (Kendall and Stuart)."""


@dataclass(frozen=True)
class MetricTrend:
    """A metric that does not follow the training loss, which falls."""

    name: str
    held_out: bool
    """True if the metric is of data that are not trained on."""
    kind: str
    """``constant``, ``still`` (it stays at its level) or ``worse`` (it was better before)."""
    phrase: str
    """What it does, for a sentence: ``'accuracy' stayed at 0.1 (8 values)``."""


def metric_trends(case: Symptoms) -> tuple[MetricTrend, ...]:
    """Return the metrics that do not follow the loss of the main optimizer, by name; none if that does not fall."""
    if not case.learned:
        return ()
    found = []
    for name in metric_names(case.history.scalars):
        meaning = meaning_of(name)
        series = case.run.scalar(f"{METRIC}{name}")
        if meaning is None or len(series) < ENOUGH or not np.isfinite(series.values).all():
            continue
        if _loss_fell(case, series) and (trend := _trend(case, name, meaning, series)) is not None:
            found.append(trend)
    return tuple(found)


def _loss_fell(case: Symptoms, metric: Series) -> bool:
    """Return True if the training loss fell clearly between the first and the last value of a metric."""
    y = case.loss.finite.between(int(metric.steps[0]), int(metric.steps[-1])).values
    if len(y) < FEW:
        return False
    part = LossSummary(case.loss.finite.between(int(metric.steps[0]), int(metric.steps[-1])))
    head = max(1, len(y) // 10)
    before, after = float(np.median(y[:head])), float(np.median(y[-head:]))
    return before - after > max(FELL * abs(before), SURE * _MEDIAN * part.noise * math.sqrt(2 / head))


def _trend(case: Symptoms, name: str, meaning: Meaning, series: Series) -> MetricTrend | None:
    y = series.values
    most = (100.0 if y.max() > 1.5 else 1.0) if meaning.share else math.nan
    if meaning.share and not y.max() <= most:
        return None  # not what its name says
    if meaning.rises and y.min() == y.max():
        return None if y[0] >= AT_BEST * most else _told(case, name, meaning, y, "constant")
    if meaning.rises and meaning.share and _stays(y, most):
        return _told(case, name, meaning, y, "still")
    return _worse(name, meaning, series, most) if meaning.held_out else None


def _stays(y: Floats, most: float) -> bool:
    """Return True if a share stays at its level, as sure as ``STILL``: it never rose, and its noise could hide no
    rise.
    """
    third = len(y) // 3
    noise = _noise(y)
    error = _MEDIAN * noise * math.sqrt(2 / max(third, 1))
    first, last = float(np.median(y[: max(third, 1)])), float(np.median(y[-max(third, 1) :]))
    middle = float(np.median(y[third : len(y) - third]))
    close = max(first, middle, last) - min(first, middle, last) <= STILL * most
    # The first values may be those of a rise that was over soon.
    begun = float(y[: max(1, third // 4)].min()) >= last - STILL * most - SURE * noise
    calm = noise <= NOISY * most and error <= STILL * most
    return close and begun and calm and float(np.median(y)) < AT_BEST * most


def _told(case: Symptoms, name: str, meaning: Meaning, y: Floats, kind: str) -> MetricTrend:
    level = float(np.median(y))
    said = f"{name!r} {'was' if kind == 'constant' else 'stayed at'} {number(level)}"
    said += f" in all {len(y):,} values" if kind == "constant" else f" ({len(y):,} values)"
    classes = [term.classes for term in case.terms if term.kind in ("cross_entropy", "nll") and term.classes > 1]
    if meaning.classes and len(classes) == 1 and level <= 100.0:
        share = level / (100.0 if y.max() > 1.0 else 1.0)
        if abs(share - 1 / classes[0]) <= STILL:
            said += f", that of a guess among {classes[0]} classes"
    return MetricTrend(name, meaning.held_out, kind, said)


def _worse(name: str, meaning: Meaning, series: Series, most: float) -> MetricTrend | None:
    """Return a metric of held-out data that was clearly better before, and is not on its way back."""
    sign = 1.0 if meaning.rises else -1.0
    y = sign * series.values
    window = int(np.clip(len(y) // 5, 1, 50))
    level = np.median(np.lib.stride_tricks.sliding_window_view(y, window), axis=1)
    at, last = int(level.argmax()), float(level[-1])
    best, lost = float(level[at]), float(level[at]) - last
    room = WORSE * most if meaning.share else ROSE * abs(best)
    enough = max(room, SURE * _MEDIAN * _noise(y) * math.sqrt(2 / window))
    # The last third must lie below the best: a single bad value at the end is none.
    since = level[-max(2, len(level) // 3) :]
    if at + window > len(y) - 2 or not lost > enough or not bool((best - since > 0.5 * enough).all()):
        return None
    verb = "fell" if meaning.rises else "rose"
    step = int(series.steps[at + window - 1])
    said = f"{name!r} {verb} from {number(sign * best)} at step {step:,} to {number(sign * last)}"
    return MetricTrend(name, True, "worse", said)


def _noise(y: Floats) -> float:
    """Return the standard deviation of one value about a curve, by the median size of the second differences.

    Few values of a curve that bends differ by its slope, and not by noise (Gasser, Sroka and Jennen-Steinmetz 1986).
    """
    return float(1.4826 * np.median(np.abs(np.diff(y, 2))) / math.sqrt(6))


def held_out(trends: tuple[MetricTrend, ...]) -> MetricTrend | None:
    """Return the first of some trends that is of data which are not trained on; None if there is none."""
    return next((trend for trend in trends if trend.held_out), None)


def trend_words(trends: tuple[MetricTrend, ...]) -> str:
    """Write the first of some trends for the end of a sentence about the loss: "while the logged 'accuracy' ..."; "" if
    there is none.
    """
    if not trends:
        return ""
    more = f" (and {len(trends) - 1} more of what was logged did not follow it)" if len(trends) > 1 else ""
    return f"while the logged {trends[0].phrase}{more}"
