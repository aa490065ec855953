"""Evaluation against training: the curves of both losses enter, the gap with its trend leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.health.curve_readings import LEAST
from neuraldbg.nouns.robust_statistics import kendall, noise_of
from neuraldbg.nouns.training_dynamics import GeneralisationGap

if TYPE_CHECKING:
    from neuraldbg.health.curve_readings import Curve

LEVEL = 0.02
"""Probability below which an order of the gaps counts as a trend, as in ``convergence.py``."""
AROUND = 25
"""Largest number of training losses around an evaluation whose median is the level there."""


def gap_of(training: Curve, evaluation: Curve) -> GeneralisationGap | None:
    """Return the gap at the steps of the evaluations; None if none of them has a training loss before it."""
    pairs = []
    size = max(1, min(AROUND, len(training) // max(len(evaluation), 1)))
    for at, loss, step in zip(evaluation.at, evaluation.y, evaluation.steps, strict=True):
        end = int(np.searchsorted(training.at, at, side="right"))
        if end:
            # Around the evaluation: a level of the values before it alone lags behind a loss that falls.
            near = training.y[max(0, end - (size + 1) // 2) : end + size // 2]
            pairs.append((int(step), float(loss), float(np.median(near))))
    if not pairs:
        return None
    steps = [step for step, _, _ in pairs]
    losses, levels = np.array([p[1] for p in pairs]), np.array([p[2] for p in pairs])
    gaps = losses - levels
    order = kendall(gaps)
    word = "not enough data" if len(gaps) < LEAST else "steady"
    if len(gaps) >= LEAST and order.p < LEVEL:
        word = "growing" if order.s > 0 else "shrinking"
    best = int(losses.argmin())
    rest = losses[best:]
    # It rose after its best: in order, or by far more than from one evaluation to the next.
    rose = len(rest) > 1 and float(np.median(rest[-3:])) - losses[best] > 3 * noise_of(losses)
    rose &= len(rest) > 3 or kendall(rest).p < LEVEL
    relative = float(gaps[-1] / levels[-1]) if levels[-1] > 0 and training.positive else None
    return GeneralisationGap(
        word, float(gaps[-1]), relative, len(gaps), steps[best], bool(word == "growing" and rose), order.p
    )
