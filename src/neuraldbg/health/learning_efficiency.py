"""The gain of a step: the curve of the loss enters, its fall by step at the end and at the beginning leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.training_dynamics import LearningEfficiency

if TYPE_CHECKING:
    from neuraldbg.health.curve_readings import Curve

PARTS = 30
"""Blocks of the whole curve: ten for each third."""
FEWEST = 12
"""Values from which on thirds are compared."""
MOST_OF = 0.9
"""Share of the fall whose step is told."""


def efficiency_of(curve: Curve, samples: int | None) -> LearningEfficiency | None:
    """Return the fall of the loss by step and sample. None if it has not fallen, or has few values.

    ``samples`` is the number of samples of the whole run; None if it is not known.
    """
    if len(curve) < FEWEST or curve.span <= 0:
        return None
    levels, at = curve.window(0.0, blocks=PARTS).level, curve.window(0.0, blocks=PARTS).at
    lowest = curve.lowest[0]
    fall = curve.start - lowest
    if fall <= 3 * curve.noise / np.sqrt(curve.size) or fall <= 0:
        return None
    # Levels at a third and at two thirds of the steps; the ends are those of the curve.
    one, two = np.interp([at[0] + curve.span / 3, at[0] + 2 * curve.span / 3], at, levels)
    third = curve.span / 3
    first, last = (curve.start - float(one)) / third, (float(two) - curve.last) / third
    reached = int(np.flatnonzero(levels <= curve.start - MOST_OF * fall)[:1].sum())
    by = int(at[reached])
    ratio = last / first if first > 0 else float("inf") if last > 0 else 0.0
    whole = curve.start - curve.last
    return LearningEfficiency(
        first, last, ratio, whole / samples if samples else None, by, float((at[reached] - at[0]) / curve.span)
    )
