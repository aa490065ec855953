"""The weights of a parameter are beyond any usual scale.

`large_weights`: the RMS of a parameter lies above a thousand, or it has grown far above that of its first step. Weights
begin near or below one and stay within some tens; those of thousands make activations that overflow or saturate. It is
a finding of its own: a loss may look calm where the layers after it are saturated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.block import steps_before
from neuraldbg.detect.episodes import Episodes, carry
from neuraldbg.detect.layer_rows import RMS, TOTAL, Synced, flat, sorted_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.nouns import Event, Layout, Step

    Floats = npt.NDArray[np.float64]


class WeightScaleThresholds(Thresholds):
    """The thresholds of weights that are too large."""

    rms: float = Field(
        1e3, gt=0, description="RMS of a parameter. Source: our own choice; usual weights are below 1, gains near 1."
    )
    growth: float = Field(
        100.0, gt=1, description="Against the RMS at the first step that was read. Source: our own choice."
    )
    grown_rms: float = Field(
        10.0, gt=0, description="`growth` counts above this RMS. Source: biases and gates grow from nearly zero."
    )
    leave: float = Field(
        2.0, ge=1, description="Factor below a threshold at which the episode ends. Source: our own choice."
    )


class WeightScale(Synced):
    """The detector of weights that are beyond any usual scale."""

    name: ClassVar[str] = "weight_scale"
    needs: ClassVar[frozenset[str]] = frozenset({"param"})
    light: ClassVar[bool] = False

    def __init__(self, thresholds: WeightScaleThresholds | None = None) -> None:
        super().__init__()
        self.thresholds = thresholds or WeightScaleThresholds()
        self._places: tuple[tuple[str, str], ...] = ()
        self._rms: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._total = self._rms
        self._first: Floats = np.zeros(0)
        """RMS of each parameter at the first step that was read. NaN until then."""
        self._episodes = Episodes("large_weights", "optimizer_stability", leave_steps=3)

    def build(self, layout: Layout, rows: int) -> None:
        """Sort the rows of the parameters in data-flow order, and keep what is known of the earlier ones."""
        picked = sorted_rows(layout, [row for row in layout.rows("param") if row < rows])
        places = tuple((layout.sites[row].module, f"param/{layout.sites[row].label}") for row in picked)
        self._first = carry(self._places, places, self._first, np.nan)
        self._places = places
        self._rms, self._total = (flat(np.array(picked, np.intp), stat) for stat in (RMS, TOTAL))
        self._episodes.resize(places)

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        self.sync(step, layout)
        if not len(self._places):
            return []
        rms = step.table.take(self._rms)
        fresh = np.isnan(self._first)
        if fresh.any():
            self._first[fresh] = rms[fresh]
        bad = self._large(rms)
        if self._episodes.idle and not bad.any():
            return []
        t = self.thresholds
        calm = np.isfinite(rms) & ~bad & ~self._large(rms * t.leave)

        def describe(i: int) -> tuple[float, dict[str, Any]]:
            by_size = rms[i] > t.rms
            details = {"how": "size" if by_size else "growth", "rms": float(rms[i])}
            details["norm"] = float(rms[i] * np.sqrt(step.table.take(self._total[i])))
            details |= {"first_rms": float(self._first[i]), "threshold": t.rms if by_size else t.growth}
            return 0.9, details

        return self._episodes.observe(step.index, bad, calm, describe)

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading steps in which no weight is large."""
        self.sync(block.steps[first], block.layout)
        if not len(self._places):
            return len(block) - first
        if not self._episodes.idle or np.isnan(self._first).any():
            return 0
        return steps_before(self._large(block.take(self._rms, first)))

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return self._episodes.ongoing()

    def _large(self, rms: Floats) -> npt.NDArray[np.bool_]:
        """Return a mask of the parameters that are large; those that were not read are not."""
        t = self.thresholds
        return np.asarray((rms > t.rms) | ((rms > t.grown_rms) & (rms > t.growth * self._first)))
