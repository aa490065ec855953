"""The loss curve of one optimizer: a series enters, a summary with levels, noise and trend leaves.

All comparisons are against the series' own noise (``nouns/robust_statistics.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.wording import number, percent
from neuraldbg.nouns import Series
from neuraldbg.nouns.robust_statistics import noise_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

ENOUGH = 30
"""Recorded losses needed before "it does not learn" can be said."""
FEW = 10
"""Recorded losses below which only drastic changes count."""
WORTH = 0.05
"""Share of the initial loss by which a loss must fall to count as learning."""
BACK = 0.2
"""Share of a rise that must be made good from one quarter of the losses to the last, for a loss on its way back."""
SCATTER = 6.0
"""Standard deviations above the level before a rise from which a loss belongs to the rise."""
SUDDEN, SUDDEN_SHARE = 20, 0.02
"""Losses, and share of all of them, within which half of a rise is a jump."""
ALL = 0.85
"""Share of its fall that a loss must lose where its level says less: it falls again, or it is computed in another way
since. Beyond that it is about that of an untrained model."""
ON, ON_STEPS = 0.05, 60
"""Share of a rise by which a loss falls from the middle third of the losses since to the last one, if it still falls,
and their least number."""
STAYS = 50
"""Losses that a level must last to count as one that the loss stays at."""


@dataclass(frozen=True)
class LossSummary:
    """The levels, noise and trend of one loss. All properties are safe on an empty series."""

    series: Series
    alone: bool = True
    """False if several optimizers share the training: a GAN's losses need not fall, only stay bounded."""
    renewed: tuple[tuple[int, int], ...] = ()
    """Steps between which the loss came to be computed in another way: levels before and after are of two losses."""
    reshaped: tuple[tuple[int, int], ...] = ()
    """Steps between which samples came to have another shape: the level before is that of another task."""

    def __len__(self) -> int:
        return len(self.series)

    @cached_property
    def finite(self) -> Series:
        """The finite losses of the series."""
        return self.series.finite()

    @property
    def _y(self) -> Floats:
        return self.finite.values

    @cached_property
    def window(self) -> int:
        """Number of losses over which a level is taken: a tenth of the series, at most 50."""
        return int(np.clip(len(self._y) // 10, 1, 50))

    @property
    def initial(self) -> float:
        """The first finite loss, that of the untrained model; NaN if there is none."""
        return float(self._y[0]) if len(self._y) else float("nan")

    @property
    def last(self) -> float:
        """The level at the end: median over the last window; NaN if there is none."""
        return float(np.median(self._y[-self.window :])) if len(self._y) else float("nan")

    @property
    def ending(self) -> str:
        """The level at the end with its meaning: ``32.6 (median of the last 6 losses)``."""
        return f"{number(self.last)} ({self._over('median of the last', 'last')})"

    @property
    def course(self) -> str:
        """Initial loss and level at the end: ``from 2.3 to 0.62 (median of the last 6 losses), by 73%``."""
        way = "a rise by " if self.relative < 0 else "by "
        return f"from {number(self.initial)} to {self.ending}, {way}{percent(abs(self.relative))}"

    @property
    def lowest(self) -> str:
        """The lowest level with its meaning: ``0.213 (lowest median of 6 losses in a row)``."""
        return f"{number(self.best)} ({self._over('lowest median of', 'lowest')}{' in a row' * (self.window > 1)})"

    def _over(self, several: str, one: str) -> str:
        noun = "finite loss" if len(self.finite) < len(self.series) else "loss"
        return f"{several} {self.window} {noun}es" if self.window > 1 else f"{one} {noun}"

    @cached_property
    def best(self) -> float:
        """The lowest level over any window; NaN if there is none."""
        y, k = self._y, self.window
        if not len(y):
            return float("nan")
        return float(np.median(np.lib.stride_tricks.sliding_window_view(y, k), axis=1).min())

    @cached_property
    def best_step(self) -> int:
        """The last step of the window with the lowest level; 0 if there is none."""
        if not len(self._y):
            return 0
        level = np.median(np.lib.stride_tricks.sliding_window_view(self._y, self.window), axis=1)
        return int(self.finite.steps[int(level.argmin()) + self.window - 1])

    @cached_property
    def _low(self) -> slice:
        """The rows of the window with the lowest level and of the three before it."""
        end = int(np.searchsorted(self.finite.steps, self.best_step)) + 1
        return slice(max(0, end - 4 * self.window), end)

    @cached_property
    def calm(self) -> float:
        """Standard deviation of one step's loss at the time of the lowest level, by the robust estimate above."""
        part = self.finite.steps[self._low], self._y[self._low], self.finite.width[self._low]
        return LossSummary(Series(*part)).noise

    @cached_property
    def left_best(self) -> bool:
        """Return True if nearly all losses at the end lie above nearly all of those at the lowest level. A loss that
        scatters more after a collapse than it ever rose is told by this, and not by its noise.
        """
        k = self.window
        if len(self._y) < ENOUGH:
            return False
        low = self._y[self._low][-k:]
        return bool(np.quantile(self._y[-k:], 0.2) > np.quantile(low, 0.8))

    @cached_property
    def comes_back(self) -> bool:
        """Return True if a rise above the lowest level is being made good: a new task, a recovered spike."""
        y, quarter = self._y, len(self._y) // 4
        if self.learns_on:
            return True
        if not self.still_falling or quarter < 3:
            return self.still_falling
        drop = float(np.median(y[-2 * quarter : -quarter]) - np.median(y[-quarter:]))
        return drop > BACK * (self.last - self.best)

    @cached_property
    def learns_on(self) -> bool:
        """Return True if the loss has fallen again since it rose, and still falls: harder data, that are learnt."""
        since = self._y[self._rise[0] :] if len(self._y) else self._y
        third = len(since) // 3
        if len(since) < ON_STEPS or not self.last < ALL * self.initial:
            return False
        first, middle, last = (float(np.median(since[k * third : (k + 1) * third])) for k in range(3))
        rise, error = self.last - self.best, noise_of(since) * np.sqrt(2 / third)
        return first - last > BACK * rise and middle - last > max(ON * rise, 3 * error)

    @cached_property
    def redefined(self) -> bool:
        """Return True if the loss is computed in another way, or of samples of another shape, since it rose to its last
        level.
        """
        changes = (*self.renewed, *self.reshaped)
        return any(since - FEW < self.risen_from <= until + SUDDEN for since, until in changes)

    @cached_property
    def noise(self) -> float:
        """Standard deviation of one step's loss about its trend, by the robust estimate above; 0 if unknown."""
        return noise_of(self._y)

    @property
    def peak(self) -> float:
        """The highest finite loss; NaN if there is none."""
        return float(self._y.max()) if len(self._y) else float("nan")

    @property
    def nonfinite_from(self) -> int | None:
        """First step with a NaN or infinite loss; None if there is none."""
        bad = np.flatnonzero(~np.isfinite(self.series.values))
        return int(self.series.steps[bad[0]]) if len(bad) else None

    @property
    def ends_nonfinite(self) -> bool:
        """Return True if the loss was NaN or infinite when the run ended."""
        return bool(len(self.series)) and not np.isfinite(self.series.values[-1])

    @cached_property
    def falling(self) -> bool:
        """Return True if the last third lies below the first third by more than three standard errors."""
        y = self._y
        if len(y) < FEW:
            return False
        third = len(y) // 3
        drop = float(np.median(y[:third]) - np.median(y[-third:]))
        return drop > 3 * self.noise * np.sqrt(2 / third) and drop > 1e-6 * abs(self.initial)

    @cached_property
    def still_falling(self) -> bool:
        """Return True if the last quarter lies below the quarter before it by more than three standard errors."""
        y, quarter = self._y, len(self._y) // 4
        if quarter < 3:
            return True
        drop = float(np.median(y[-2 * quarter : -quarter]) - np.median(y[-quarter:]))
        noise = LossSummary(Series(self.finite.steps[quarter:], y[quarter:], self.finite.width[quarter:])).noise
        return bool(drop > 3 * noise * np.sqrt(2 / quarter))

    @property
    def relative(self) -> float:
        """The fall from the initial loss to the end, as a share of the initial loss: 0.4 is a fall by 40%, negative a
        rise.
        """
        scale = abs(self.initial)
        return (self.initial - self.last) / scale if scale else 0.0

    @property
    def gain(self) -> float:
        """The fall from the initial loss to the lowest level, as a share of the initial loss."""
        scale = abs(self.initial)
        return (self.initial - self.best) / scale if scale else 0.0

    @property
    def learned(self) -> bool:
        """Return True if the loss fell for good: by more than noise, and by more than ``WORTH``."""
        if self.ends_nonfinite or self.diverged or len(self) < FEW:
            return False
        drop = self.initial - self.last
        return (self.falling or self.fell_at_once or drop > 4 * self.noise) and self.relative > WORTH

    @cached_property
    def fell_at_once(self) -> bool:
        """Return True if the loss fell within the first steps and stayed down: by more than four standard errors, and
        by a tenth.
        """
        y = self._y
        if len(y) < ENOUGH:
            return False
        level = float(np.median(y[len(y) // 2 :]))
        heads = [k for k in (5, 10, 20, 40) if k <= len(y) // 4]
        drops = [(float(np.median(y[:k])) - level, k) for k in heads]
        return any(drop > 4 * self.noise / np.sqrt(k) and drop > 2 * WORTH * abs(level + drop) for drop, k in drops)

    @cached_property
    def diverged(self) -> bool:
        """Return True if the loss ended far above its first value, or rose by more than half of its fall."""
        y = self._y
        if len(y) < 2 or not np.isfinite(self.initial):
            return False
        scale = abs(self.initial)
        if y.min() < 0:  # a loss that may be negative has no natural scale: only an explosion counts
            return abs(self.last) > 100 * max(scale, self.noise) and self.last > self.initial
        if not self.alone:
            return self.last > 20 * scale + 5 * self.noise
        factor = 2.0 if len(y) < FEW else 0.5
        worse = self.last > self.initial + max(5 * self.noise, factor * scale)
        # A loss that jumps about far above its start has a large noise and no level: nearly all of it is too high.
        worse |= len(y) >= FEW and float(np.quantile(y[len(y) // 2 :], 0.1)) > self.initial + scale
        return worse or self.lost(0.5)

    def lost(self, share: float, start: float = float("nan")) -> bool:
        """Return True if the loss ends above its lowest level by a share of its fall, and far beyond its noise at that
        time. ``start`` is the level from which it fell, that of the first loss if it is not given or higher.
        """
        begun = min(self.initial, start) if start == start else self.initial  # noqa: PLR0124 (NaN for none)
        fallen, lost = begun - self.best, self.last - self.best
        if self.redefined:
            share = max(share, ALL)
        if len(self._y) < ENOUGH or not fallen > max(5 * self.calm, WORTH * abs(begun)):
            return False
        return lost > max(5 * self.calm, share * fallen) and self.left_best and not self.comes_back

    @property
    def diverged_from(self) -> int | None:
        """The step from which a diverged loss stays above its level; None if it did not diverge."""
        return self.risen_from if self.diverged else None

    @cached_property
    def risen_from(self) -> int:
        """The first step of the rise to the level at the end."""
        return int(self.finite.steps[self._rise[0]])

    @property
    def jumped(self) -> bool:
        """Return True if half of the rise to the level at the end came within a few steps."""
        first, half = self._rise
        return half - first <= max(SUDDEN, SUDDEN_SHARE * len(self._y))

    @property
    def stays(self) -> bool:
        """Return True if the level at the end lasted for long: for ``STAYS`` losses and a twentieth of all."""
        return len(self._y) - self._rise[1] >= max(STAYS, len(self._y) // 20)

    @cached_property
    def apart(self) -> float:
        """The level at the end over that before the rise, where nine tenths of the losses at the end lie above nine
        tenths of those before; 0 if they overlap, or the level before is not above 0.
        """
        first, _ = self._rise
        before, end = self._y[max(0, first - self.window) : first], self._y[-self.window :]
        if len(before) < self.window or not np.median(before) > 0 or len(self._y) - first < self.window:
            return 0.0
        return self.last / float(np.median(before)) if np.quantile(end, 0.1) > np.quantile(before, 0.9) else 0.0

    @cached_property
    def _rise(self) -> tuple[int, int]:
        """The rows at which the rise to the level at the end begins, and from which half of it is left behind."""
        y, fallen = self._y, self.best < 0.95 * self.initial
        best = int(np.searchsorted(self.finite.steps, self.best_step)) if fallen else 0
        # A noisy loss falls below the level at times, and an outlier comes before the rise: four fifths of all later
        # losses, and of the next ones, are above it.
        above = y > ((min(self.initial, self.best)) + self.last) / 2
        sums = np.concatenate([[0], np.cumsum(above)])
        later = np.arange(len(y), 0, -1)
        near = np.minimum(later, SUDDEN // 2)
        at = np.arange(len(y))
        lasts = (sums[-1] - sums[:-1] >= 0.8 * later) & (sums[at + near] - sums[at] >= 0.8 * near)
        found = np.flatnonzero(above & lasts & (at >= best))
        half = int(found[0]) if len(found) else len(y) - 1
        # The rise itself begins where the losses leave the scatter of those shortly before.
        end = max(best + 1, half - SUDDEN)
        before = y[max(0, min(best - self.window, end - 3 * self.window) if fallen else 0) : end]
        level = float(np.median(before))
        scatter = 1.4826 * float(np.median(np.abs(before - level)))
        since = max(best + fallen, half - SUDDEN - 3 * self.window)
        out = y[since : half + 1] > max(level + SCATTER * scatter, float(np.quantile(before, 0.98)))
        share = np.cumsum(out[::-1])[::-1] / np.arange(len(out), 0, -1)
        first = np.flatnonzero(out & (share >= 0.8))
        return (since + int(first[0]) if len(first) else half), half

    @property
    def early_rise(self) -> float:
        """The highest of the ten losses after the first, over the first; above 1.5 the first updates did harm. NaN if
        unknown.
        """
        after = self._y[1:11]
        if not len(after) or self.initial <= 0:
            return float("nan")
        return float(after.max() / self.initial)

    @property
    def rose(self) -> bool:
        """Return True if the loss was ever clearly above its first value: steps that are too large overshoot first."""
        return bool(self.peak > self.initial + max(5 * self.noise, 0.1 * abs(self.initial)))

    @property
    def stuck(self) -> bool:
        """Return True if the loss never fell by more than noise in enough steps."""
        if len(self._y) < ENOUGH or self.diverged or self.ends_nonfinite or not self.alone:
            return False
        best_gain = self.initial - self.best
        down = self.falling and self.last < self.initial  # a return from an early jump to the first value is no fall
        down |= self.relative > 0.3  # noisy, but clearly a fall
        return not self.learned and not down and best_gain <= max(4 * self.noise, WORTH * abs(self.initial))

    @property
    def slow(self) -> bool:
        """Return True if the loss falls, but by no more than ``WORTH`` over the run."""
        return (
            self.alone
            and len(self._y) >= ENOUGH
            and self.falling
            and not self.diverged
            and not self.ends_nonfinite
            and self.last < self.initial
            and self.gain <= WORTH
        )
