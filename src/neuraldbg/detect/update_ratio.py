"""The optimizer's updates are out of proportion to the weights.

The ratio norm(update) / norm(weight) of each weight matrix is near 1e-3 in healthy training. `update_ratio_high`: a
matrix changes by a tenth of itself at every step while the loss does not improve, or by more than itself.
`update_ratio_low`: the median over all matrices is so small that nothing can be learned (a run-wide event without a
layer), or one matrix hardly changes while the others do. Low is not judged while the learning rate warms up or after it
was decayed, nor if the loss has settled or is falling: small updates are then right. Biases, gains and weights that
begin at zero have no meaningful ratio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.block import steps_before
from neuraldbg.detect.episodes import Episode, Episodes, carry
from neuraldbg.detect.layer_rows import COUNT, RMS, flat
from neuraldbg.detect.readings import Readings

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.nouns import Event, Layout, Step

    Floats = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]


class UpdateRatioThresholds(Thresholds):
    """The thresholds of the ratio of updates to weights."""

    high: float = Field(
        0.1,
        gt=0,
        description="Ratio that is high if it lasts. Source: two orders above the 1e-3 of practice (Bottou; CS231n "
        "notes).",
    )
    overwrite: float = Field(
        1.0, gt=0, description="Ratio at which a step replaces the weights. Source: by definition."
    )
    low: float = Field(
        1e-5, gt=0, description="Median ratio that is low. Source: two orders below the 1e-3 of practice."
    )
    still: float = Field(
        1e-8,
        gt=0,
        description="Ratio of one matrix at which it stands still. Source: SageMaker Debugger, WeightUpdateRatio, "
        "small_threshold.",
    )
    leave: float = Field(
        2.0, ge=1, description="Factor back inside at which the episode ends. Source: our own choice of hysteresis."
    )
    high_steps: int = Field(
        20,
        ge=1,
        description="Steps in a row for `high`. Source: weights that begin at zero have a ratio of 1/t at step t.",
    )
    overwrite_steps: int = Field(3, ge=1, description="Steps in a row for `overwrite`. Source: our own choice.")
    low_steps: int = Field(50, ge=1, description="Steps in a row for `low` and `still`. Source: our own choice.")
    decayed: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Low is judged while the learning rate is at least this share of its highest. Source: our own "
        "choice.",
    )
    smallest: float = Field(1e-8, gt=0, description="RMS weight below which there is no ratio. Source: our own choice.")


class UpdateRatio:
    """The detector of updates that are too large or too small for the weights."""

    name: ClassVar[str] = "update_ratio"
    needs: ClassVar[frozenset[str]] = frozenset({"param", "update"})
    light: ClassVar[bool] = False

    def __init__(self, thresholds: UpdateRatioThresholds | None = None) -> None:
        self.thresholds = t = thresholds or UpdateRatioThresholds()
        self.readings = Readings()
        self._version = 0
        self._update: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._param: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._update_count = self._update
        """Indices in the flattened table: of the updates' rms (``_update``), the weights' rms (``_param``) and the
        updates' count (``_update_count``)."""
        self._young: Bools = np.zeros(0, np.bool_)
        """True for weights that began at zero and still grow: their ratio falls with time by itself."""
        self._any_young = False
        self._lr: dict[int, tuple[float, float]] = {}
        family = "optimizer_stability"
        self._high = Episodes("update_ratio_high", family, enter_steps=t.high_steps, leave_steps=3)
        self._over = Episodes("update_ratio_high", family, enter_steps=t.overwrite_steps, leave_steps=3)
        self._still = Episodes("update_ratio_low", family, enter_steps=t.low_steps, leave_steps=3)
        self._low: dict[int, Episode] = {}
        self._held = False
        self._median = 0.0

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        progress = self.readings.progress.observe(step)
        self._sync(step, layout)
        if not step.applied or not len(self._update):
            return []
        table, t = step.table, self.thresholds
        weight, update = table.take(self._param), table.take(self._update)
        if weight.min() > t.smallest and update.min() >= 0:  # a site that was not read is NaN, which compares as false
            ratio = update / weight
        else:
            there = table.take(self._update_count) > 0
            seen = there & (weight > t.smallest) & (update >= 0)
            if not seen.any():
                return []
            ratio = np.divide(update, weight, where=seen, out=np.full(len(weight), np.nan))
            young = there & ~(weight > t.smallest)
            self._young |= young
            self._any_young |= bool(young.any())
        if self._any_young:
            self._young &= ~(ratio < t.high / t.leave)
            self._any_young = bool(self._young.any())
        # The median is judged in every step, since it also notes the learning rate.
        improving = progress is not None and progress.learned()
        events = self._judge_median(step, ratio, improving=improving)
        if self._idle and np.fmax.reduce(ratio) <= t.high and np.fmin.reduce(ratio) >= t.still:
            return events
        return events + self._judge_high(step, ratio, improving=improving) + self._judge_still(step, ratio)

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading steps in which every ratio, and their median, is within the thresholds."""
        self._sync(block.steps[first], block.layout)
        if not len(self._update):
            return len(block) - first
        low, t = self._low.get(block.stream), self.thresholds
        if low is None or low.active or low.run or self._any_young or not self._idle:
            return 0
        weight, update = block.take(self._param, first), block.take(self._update, first)
        usual = steps_before(~(weight > t.smallest))  # a site that was not read is NaN, which compares as false
        ratio = update[:usual] / weight[:usual]
        fine = steps_before(~((ratio <= t.high) & (ratio >= t.still)))
        steps, (top, before) = 0, self._lr[block.stream]
        for step in block.steps[first : first + fine]:
            median = step.scalars.get("update_ratio")
            if median is None or 0.0 < median < t.low:
                break
            before = step.scalars.get("lr", np.nan)
            top = max(top, before)
            steps += 1
        self._lr[block.stream] = (top, before)
        return steps

    @property
    def _idle(self) -> bool:
        return self._over.idle and self._high.idle and self._still.idle

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        low = [event for episode in self._low.values() for event in episode.ongoing()]
        return self._merged(self._over.ongoing(), self._high.ongoing()) + self._still.ongoing() + low

    def _sync(self, step: Step, layout: Layout) -> None:
        p = self.readings.parameters
        p.sync(step, layout)
        if p.version == self._version:
            return
        self._version = p.version
        picked = p.matrix & (p.param >= 0)
        self._update, self._param = flat(p.update[picked], RMS), flat(p.param[picked], RMS)
        self._update_count = flat(p.update[picked], COUNT)
        places = [place for place, keep in zip(p.places, picked.tolist(), strict=True) if keep]
        self._young = carry(self._high.places, places, self._young, 0)
        for episodes in (self._high, self._over, self._still):
            episodes.resize(places)

    def _judge_high(self, step: Step, ratio: Floats, *, improving: bool) -> list[Event]:
        t, index, missed = self.thresholds, step.index, self.readings.missed(step)

        def describe(i: int) -> tuple[float, dict[str, Any]]:
            typical = float(np.nanmedian(ratio))
            share = float((ratio > t.high).sum() / np.isfinite(ratio).sum())
            details = {"ratio": float(ratio[i]), "threshold": t.high, "median": typical, "share_high": share}
            return (0.95 if ratio[i] > t.overwrite else 0.6), details

        over = ratio > t.overwrite
        high = np.zeros_like(over) if improving else (ratio > t.high) & ~self._young
        first = self._over.observe(index, over, ratio < t.overwrite / t.leave, describe, missed=missed)
        calm = (ratio < t.high / t.leave) | improving
        return self._merged(first, self._high.observe(index, high, calm, describe, missed=missed))

    @staticmethod
    def _merged(over: list[Event], high: list[Event]) -> list[Event]:
        """Return both kinds of events, those above ``overwrite`` alone for a site with both."""
        told = {event.site for event in over}
        return over + [event for event in high if event.site not in told]

    def _judge_median(self, step: Step, ratio: Floats, *, improving: bool) -> list[Event]:
        """Judge the median over all matrices. Set ``_held`` if low ratios are right at this step."""
        t = self.thresholds
        # Low ratios are right during warm-up, after a decay, and while the loss improves.
        lr = step.scalars.get("lr", np.nan)
        top, before = self._lr.get(step.stream, (lr, lr))
        self._lr[step.stream] = (max(top, lr), lr)
        scheduled = not np.isnan(lr) and (lr < t.decayed * top or lr > before)
        self._held = held = improving or scheduled
        median = step.scalars.get("update_ratio")
        if median is None:
            moving = ratio[ratio > 0]
            median = float(np.median(moving)) if len(moving) else 0.0
        self._median = median
        # One episode per optimizer: each has a median of its own.
        low = self._low.get(step.stream)
        if low is None:
            low = Episode("update_ratio_low", "optimizer_stability", enter_steps=t.low_steps, leave_steps=3)
            low.site = f"update/optimizer[{step.stream}]"
            self._low[step.stream] = low
        is_low = 0.0 < median < t.low and not held
        if not is_low and not low.active and not low.run:
            return []
        details = {"how": "median", "ratio": median, "threshold": t.low, "lr": lr, "stream": step.stream}
        calm = not is_low and (held or median > t.leave * t.low)
        return low.observe(step.index, is_low, calm, lambda: (0.8, details), missed=self.readings.missed(step))

    def _judge_still(self, step: Step, ratio: Floats) -> list[Event]:
        """Judge single matrices that hardly change while the others do."""
        t = self.thresholds
        judged = not self._held and self._median > t.low
        still = (ratio > 0) & (ratio < t.still) & judged
        calm = (ratio > t.leave * t.still) | (np.isfinite(ratio) & self._held)

        def describe(i: int) -> tuple[float, dict[str, Any]]:
            return 0.7, {"how": "layer", "ratio": float(ratio[i]), "threshold": t.still, "median": self._median}

        missed = self.readings.missed(step)
        return self._still.observe(step.index, still, calm & ~still, describe, missed=missed)
