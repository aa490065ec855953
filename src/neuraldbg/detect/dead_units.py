"""Rectified units that are positive for no sample of the last steps.

Judged on layers whose output is rectified: ReLU modules, and layers whose output goes into a functional `relu` first.
Units that never fire are counted, not zeros: a healthy ReLU layer is zero for half of its inputs or more. A layer whose
whole output is zero is reported within a few steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field

from neuraldbg.config import Thresholds
from neuraldbg.detect.block import steps_before
from neuraldbg.detect.episodes import Episodes, carry
from neuraldbg.detect.layer_rows import COUNT, DEAD, NONFINITE, UNITS, ZEROS, Synced, flat, flow
from neuraldbg.detect.readings import Readings
from neuraldbg.nouns.layout import RECTIFIERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.nouns import Event, Layout, Step

    Floats = npt.NDArray[np.float64]

FEW = 8
"""Units below which a layer counts only if all of them are dead: a share of a few units means little."""


class DeadUnitsThresholds(Thresholds):
    """The thresholds of the share of dead units of a layer."""

    share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of a layer's units that is exceeded. Source: SageMaker Debugger, DeadRelu, "
        "threshold_layer 50.",
    )
    leave: float = Field(
        0.4, ge=0, le=1, description="Share at which the episode ends. Source: our own choice of hysteresis."
    )
    window: int = Field(
        20, ge=1, description="Steps in which the layer must have been seen. Source: the window of capture's `dead`."
    )
    steps: int = Field(3, ge=1, description="Steps in a row before it counts. Source: our own choice.")


class DeadUnits(Synced):
    """The detector of rectified units that fire for no sample of the last steps."""

    name: ClassVar[str] = "dead_units"
    needs: ClassVar[frozenset[str]] = frozenset({"activation"})
    light: ClassVar[bool] = False

    def __init__(self, thresholds: DeadUnitsThresholds | None = None) -> None:
        super().__init__()
        self.thresholds = thresholds or DeadUnitsThresholds()
        self._picked: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._nonfinite = self._picked
        self._places: tuple[npt.NDArray[np.intp], ...] = ()
        """Indices of count, units, dead and zeros in the flattened table."""
        self._module: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._seen: Floats = np.zeros(0)
        self._young = True
        """True while some layer was read in too few steps."""
        self.readings = Readings()
        self._episodes = Episodes("dead_units", "activation_regime", enter_steps=self.thresholds.steps, leave_steps=3)

    def build(self, layout: Layout, rows: int) -> None:
        """Pick the rectified activations in data-flow order."""
        position = flow(layout)
        picked: list[tuple[tuple[int, int], int, bool]] = []
        for row in layout.rows("activation"):
            if row >= rows:
                break
            path = layout.sites[row].module
            if path in layout.rectified:
                module = layout.by_path[path].type in RECTIFIERS if path in layout.by_path else False
                picked.append((position.get(path, (0, 0)), row, module))
        picked.sort()
        places = [(layout.sites[row].module, f"activation/{layout.sites[row].label}") for _, row, _ in picked]
        self._seen = carry(self._episodes.places, places, self._seen, 0.0)
        self._episodes.resize(places)
        self._picked = np.array([row for _, row, _ in picked], np.intp)
        self._module = np.array([module for _, _, module in picked], np.bool_)
        self._places = tuple(flat(self._picked, stat) for stat in (COUNT, UNITS, DEAD, ZEROS))
        self._nonfinite = flat(self._picked, NONFINITE)
        self._young = True

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        self.sync(step, layout)
        if not len(self._picked):
            return []
        t = self.thresholds
        count, units, dead, zeros = (step.table.take(places) for places in self._places)
        if self._young:
            self._age((count > 0) & (units > 0))
        # Most steps end here: no layer can be bad by the counts alone.
        full = zeros >= count
        if (
            self._episodes.idle
            and not (dead > t.share * units).any()
            and not (full.any() and (full & self._module & (count > 0)).any())
        ):
            return []
        seen = (count > 0) & (units > 0)
        # A NaN is neither positive nor zero: such a layer is left to the non-finite detector.
        seen &= step.table.take(self._nonfinite) == 0
        share = np.divide(dead, units, where=seen, out=np.zeros(len(units)))
        silent = self._module & seen & full
        need = np.where(units < FEW, 1.0, 0.0)
        bad = (seen & (share >= need) & (share > t.share) & (self._seen >= t.window)) | silent
        calm = seen & ~bad & (share < t.leave)

        def describe(i: int) -> tuple[float, dict[str, Any]]:
            part = 1.0 if silent[i] else float(share[i])
            details = {"share": part, "dead": part * float(units[i]), "units": float(units[i]), "threshold": t.share}
            details |= {"zeros": float(zeros[i] / count[i]), "window": t.window, "all_zero": bool(silent[i])}
            return min(0.98, 0.6 + 0.38 * (part - t.share) / max(1.0 - t.share, 1e-9)), details

        return self._episodes.observe(step.index, bad, calm, describe, missed=self.readings.missed(step))

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading steps in which no layer has many dead units or is silent."""
        self.sync(block.steps[first], block.layout)
        if not len(self._picked):
            return len(block) - first
        if not self._episodes.idle:
            return 0
        count, units, dead, zeros = (block.take(places, first) for places in self._places)
        loud = (dead > self.thresholds.share * units) | (self._module & (zeros >= count) & (count > 0))
        steps = steps_before(loud)
        for seen in ((count > 0) & (units > 0))[:steps]:
            if not self._young:
                break
            self._age(seen)
        return steps

    def _age(self, seen: npt.NDArray[np.bool_]) -> None:
        """Count the steps in which each layer was read."""
        self._seen += seen
        self._young = bool((self._seen < self.thresholds.window).any())

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return self._episodes.ongoing()
