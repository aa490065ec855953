"""The loss around a change of the data that lies between two readings: where it jumped, and how far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.robust_statistics import noise_of

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.record_readings import RecordReadings

AT_ONCE, NOISES, TIMES, RISE = 3, 4.0, 1.5, 0.05
"""Losses in a row from the change on, and the standard deviations, the factor, and the share of the first loss by which
all of them rise where inputs and targets do not belong together any more."""
LOOK_BACK = 3
"""Windows of losses before the change, in which none may have risen as far."""


def jump_between(run: RecordReadings, last: int, first: int) -> tuple[float, float, int | None]:
    """Return the loss before a change between two steps, the highest right after it, and the step at which it jumped
    there; NaN and None if it did not.
    """
    loss = run.loss
    steps, values = loss.finite.steps, loss.finite.values
    begin, end = int(np.searchsorted(steps, last, "right")), int(np.searchsorted(steps, first, "right")) + AT_ONCE
    before = values[max(0, begin - loss.window) : begin]
    if not len(before) or len(values) < begin + AT_ONCE:
        return float("nan"), float("nan"), None
    level = float(np.median(before))
    bar = max(level + NOISES * noise_of(before), TIMES * level, level + RISE * abs(loss.initial))
    rows = np.lib.stride_tricks.sliding_window_view(values[begin:end], AT_ONCE)
    above = np.flatnonzero((rows > bar).all(axis=1))
    earlier = values[max(0, begin - LOOK_BACK * loss.window) : begin]
    often = len(earlier) >= AT_ONCE and (np.lib.stride_tricks.sliding_window_view(earlier, AT_ONCE) > bar).all(axis=1)
    if not len(above) or np.any(often):
        return level, float("nan"), None
    at = begin + int(above[0])
    return level, float(values[at : at + AT_ONCE].max()), int(steps[at])
