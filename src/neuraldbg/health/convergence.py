"""The end of a curve: a Curve enters; its state with the reason, its rate and its plateau leave.

The last quarter, the last half and the whole are tested for a trend, in this order. A trend of the last quarter is the
state. A trend of a wider window alone is the state, too, unless the narrower one is clearly slower than what came
before it, and level: then the curve has levelled off. Trends are tested on medians of blocks by Kendall's test; slopes
are Theil's and Sen's, with the interval of 95%.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.health.curve_readings import CURVED, LEAST, STARTING
from neuraldbg.nouns.html import number_text
from neuraldbg.nouns.robust_statistics import Slope, theil_sen
from neuraldbg.nouns.training_dynamics import (
    DIVERGED,
    FALLING,
    FEW_DATA,
    LEVELLED,
    OSCILLATING,
    RISING,
    UNCLEAR,
    Plateau,
    Rate,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.health.curve_readings import Curve, Window

    Floats = npt.NDArray[np.float64]

LEVEL, LEVEL_OF_FEW = 0.01, 0.02
"""Probability below which an order in time counts as a trend: the three windows together call noise a trend in about
one of forty runs. Few blocks, fewer than eight, have the second: five values in perfect order have 0.017."""
HALVED = 0.5
"""Share of the change before that the interval of the change may reach for a curve to be level after a fall."""
NEGLIGIBLE = 0.01
"""Share of the scale below which a change over another run of the same length is none. Source: our own choice; the
detector ``loss_plateau`` asks for half a percent of the start over half a run, which is the same."""
WIDE, AFTER_A_FALL = 3.0, 2.5
"""Noise of single values, in standard deviations, that the interval of the change may reach for a curve to be level;
the second for one that fell before, and may still fall."""
LEVEL_FROM = 10
"""Values from which on a curve can be called level."""
CYCLES = 3
"""Fewest periods of an oscillation in the last half."""
FISHER = 1e-3
"""Probability of the largest peak of the periodogram below which there is a period (Fisher 1929, Proc. R. Soc. A
125:54)."""
PERIODIC = 0.5
"""Share of the variance about the line that the period must explain."""
SWING = 0.1
"""Distance from peak to trough, as a share of the scale, from which a period is said. Source: our own choice."""
WORTH = 0.05
"""Share of the start by which a curve must fall to have learnt, as in ``explain``."""


class Course(NamedTuple):
    """The state of a curve, with the window that it was read from."""

    state: str
    reason: str
    window: Window | None = None


def course_of(curve: Curve, *, loss: bool = True) -> Course:
    """Return the state of a curve at its end. A curve that is no loss does not diverge by rising."""
    if curve.ends_nonfinite:
        return Course(DIVERGED, f"its last value is NaN or infinite ({curve.lost:,} such values)")
    if len(curve) < LEAST:
        return Course(FEW_DATA, f"{len(curve)} value{'' if len(curve) == 1 else 's'}; a trend needs {LEAST}")
    found = _state(curve)
    if loss and found.state in (RISING, LEVELLED, UNCLEAR) and _far_above(curve):
        said = f"the level went from {number_text(curve.start)} to {number_text(curve.last)}"
        return found._replace(state=DIVERGED, reason=f"{said}, far above the start")
    return found


def _far_above(curve: Curve) -> bool:
    """Return True if the level at the end is above the start by the start itself: the threshold ``rise`` of the
    detector ``loss_divergence``; by a hundred times for a curve of both signs, as in ``explain``.
    """
    factor = 1.0 if curve.positive else 100.0
    end = float(np.median(curve.y[-max(curve.size, LEAST) :]))
    return end - curve.start > max(5 * curve.noise, factor * abs(curve.start)) > 0


def _state(curve: Curve) -> Course:
    windows = [one for begin in (0.75, 0.5, 0.0) if len((one := curve.window(begin)).at) >= LEAST]
    half = curve.window(0.5)
    if (wave := _wave(curve)) is not None and wave.swing > abs(half.slope.value) * half.span:
        return Course(OSCILLATING, str(wave), windows[0])
    for narrower, window in zip((None, *windows), windows, strict=False):
        if not _trend(curve, window):
            continue
        # A trend of the wider window alone: is the narrower one clearly slower than what came before it, and level?
        if narrower is not None and (earlier := _slowed(curve, window, narrower)):
            most = min(AFTER_A_FALL * curve.late_noise, HALVED * earlier)
            level = _levelled(curve, narrower, most)
            if level.state == LEVELLED:
                return level
        state = FALLING if window.slope.value < 0 else RISING
        return Course(state, _moved(curve, window), window)
    levels = [_levelled(curve, window, WIDE * curve.late_noise) for window in reversed(windows)]
    return next((level for level in levels if level.state == LEVELLED), levels[0])


def _trend(curve: Curve, window: Window) -> bool:
    """Return True if there is an order in time, of a size that matters."""
    level = LEVEL if len(window.at) >= CURVED else LEVEL_OF_FEW
    return window.order.p < level and abs(window.slope.value) * curve.span >= NEGLIGIBLE * curve.scale > 0


def _slowed(curve: Curve, window: Window, narrower: Window) -> float:
    """Return the change before the narrower window if its slope is outside of the interval of that in it; else 0."""
    before = window.at < narrower.at[0]
    if before.sum() < 2:
        return 0.0
    earlier = theil_sen(window.at[before], window.level[before]).value
    low, high = narrower.slope.low, narrower.slope.high
    slower = low > earlier if earlier < 0 else high < earlier
    slower |= abs(narrower.slope.value) * curve.span < NEGLIGIBLE * curve.scale
    return abs(earlier) * float(np.ptp(window.at[before])) if slower else 0.0


def _levelled(curve: Curve, window: Window, most: float) -> Course:
    """Return the state of a curve without a trend: level, or unclear if the interval of its change goes beyond
    ``most``, and beyond 5% of the scale.
    """
    if len(curve) < LEVEL_FROM:
        return Course(
            FEW_DATA, f"no trend in {len(curve)} values; {LEVEL_FROM} are needed to call a curve level", window
        )
    change = max(abs(window.slope.low), abs(window.slope.high)) * window.span
    if change > max(most, WORTH * curve.scale):
        said = f"between {number_text(window.level.min())} and {number_text(window.level.max())}"
        return Course(UNCLEAR, f"it moves {said} without a trend since step {window.first:,}", window)
    said = f"at {number_text(curve.last)}, no trend beyond the noise since step {window.first:,}"
    return Course(LEVELLED, f"{said} (Kendall's test: p {window.order.p:.2g})", window)


def _moved(curve: Curve, window: Window) -> str:
    few = max(1, len(window.level) // 5)
    begin, end = float(np.median(window.level[:few])), float(np.median(window.level[-few:]))
    moved = f"from {number_text(begin)} to {number_text(end)} since step {window.first:,}"
    return f"{moved} (Kendall's test: p {window.order.p:.2g}); first value {number_text(curve.initial)}"


# ---------------------------------------------------------------- periods


class Wave(NamedTuple):
    """A period of the last half of a curve."""

    period: float
    """Steps of a period."""
    swing: float
    """Distance from peak to trough."""

    def __str__(self) -> str:
        return f"it swings by {number_text(self.swing)} with a period of {number_text(self.period)} steps"


def _wave(curve: Curve) -> Wave | None:
    """Return the period of the last half of the values; None if there is none, or values are not evenly spaced."""
    n = len(curve) // 2
    at, y = curve.at[-n:], curve.y[-n:]
    gaps = np.diff(at)
    if n < 4 * CYCLES or gaps.min() <= 0 or gaps.max() > 1.5 * gaps.min():
        return None
    place = np.arange(n) - (n - 1) / 2
    rest = y - y.mean() - place * float(place @ y) / float(place @ place)
    power = np.abs(np.fft.rfft(rest)[1:]) ** 2
    if n % 2 == 0:
        power[-1] /= 2  # the highest frequency stands once in the spectrum, all others twice
    total = float(power.sum())
    best = int(power.argmax())
    share = float(power[best] / total) if total > 0 else 0.0
    cycles = best + 1
    # A period that is no whole part of the stretch has its power in two neighbours.
    near = float(power[max(best - 1, 0) : best + 2].sum() / total) if total > 0 else 0.0
    if cycles < CYCLES or near < PERIODIC or _fisher(share, len(power)) > FISHER:
        return None
    swing = 2 * math.sqrt(2 * near * float(rest @ rest) / n) if cycles < n / 2 else 2 * float(np.abs(rest).mean())
    if swing < SWING * max(abs(curve.last) if curve.positive else 0.0, curve.scale):
        return None
    return Wave(n / cycles * float(np.median(gaps)), swing)


def _fisher(share: float, ordinates: int) -> float:
    """Return the probability of a share of the power at least as large in one ordinate of white noise."""
    if share <= 0:
        return 1.0
    terms = (
        (-1) ** (k - 1) * math.comb(ordinates, k) * (1 - k * share) ** (ordinates - 1)
        for k in range(1, min(int(1 / share), ordinates, 20) + 1)
    )
    return min(max(math.fsum(terms), 0.0), 1.0) if share > 0.1 else 1.0


# ---------------------------------------------------------------- rate and plateau


def rate_of(curve: Curve, course: Course) -> Rate | None:
    """Return the relative fall per step over the window that the state was read from. None with too few values."""
    window = course.window
    if window is None or len(window.at) < LEAST:
        return None
    if curve.positive and window.level.min() > 0:
        slope = theil_sen(window.at, np.log(window.level), window.inflation)
        return _rate(slope, 1.0, window.first, "level", Rate.source)
    if curve.scale <= 0:
        return None
    return _rate(window.slope, curve.scale, window.first, "range", "Theil-Sen slope of block medians (Sen 1968)")


def _rate(slope: Slope, scale: float, first: int, of: str, source: str) -> Rate:
    # A fall is positive, so that the ends of the interval change places; + 0.0 makes a zero of -0.0.
    value, low, high = (-end / scale + 0.0 for end in (slope.value, slope.high, slope.low))
    return Rate(value, low, high, first, of, source)


def plateau_of(curve: Curve, course: Course) -> Plateau | None:
    """Return the level stretch at the end of a curve that has levelled off; None for any other state.

    It begins with the first of the block medians at the end that stay near the level, but for single ones: within three
    standard errors of a block, or within 1% of the scale.
    """
    if course.state != LEVELLED or course.window is None:
        return None
    level = float(np.median(course.window.level))
    whole = curve.window(0.0, blocks=64)
    each = max(len(curve) / len(whole.at), 1.0)
    # 1.2533 is the ratio of the standard error of a median to that of a mean.
    band = max(3 * 1.2533 * curve.late_noise / math.sqrt(each), NEGLIGIBLE * curve.scale)
    spread = float(np.abs(course.window.level - level).max())
    band = max(band, spread)
    far = np.abs(whole.level - level) > band
    # One of sixty blocks may be away by chance; two in a row are not.
    paired = far.copy()
    paired[1:-1] &= far[:-2] | far[2:]
    away = np.flatnonzero(paired)
    begin = int(away[-1]) + 1 if len(away) else 0
    begin = min(begin, len(whole.at) - 1)
    half = (whole.at[1] - whole.at[0]) / 2 if len(whole.at) > 1 and each > 1 else 0.0
    at = int(np.searchsorted(curve.at, whole.at[begin] - half))
    since = int(curve.steps[0 if begin == 0 else min(at, len(curve) - 1)])
    return Plateau(min(since, course.window.first), level, band, course.window.order.p)


def fell(curve: Curve) -> bool | None:
    """Return True if the lowest level is below the start by more than noise and by 5%; None with too few values."""
    if len(curve) < LEVEL_FROM:
        return None
    fall = curve.start - curve.lowest[0]
    size = abs(curve.start) if curve.positive else curve.scale
    if fall <= WORTH * size:
        return False
    # The start is a level of a few values; where noise hides the fall from it, the order of the whole shows it.
    whole = curve.window(0.0).order
    clear = fall > 3 * curve.noise / math.sqrt(min(STARTING, curve.size))
    return bool(clear or (whole.s < 0 and whole.p < LEVEL))
