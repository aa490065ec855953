"""Rectified units that were positive in none of the rows that were read over many steps.

Judged on layers whose output is rectified: ReLU modules, and layers whose output goes into a functional `relu` first.
Units that never fire are counted, not zeros: a healthy ReLU layer is zero for half of its inputs or more. A unit counts
once it was silent for 20 steps (`window` of the capture) and in 300 rows (images, tokens) of three steps: it then fires
in less than 1% of the rows, with 95% confidence (rule of three, Hanley and Lippman-Hand 1983). `rows` in the details
is the number of rows in which all these units were silent, and the first step is that from which on they were. A layer
whose whole output is zero is reported within a few steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.block import steps_before
from neuraldbg.detect.episodes import Episodes
from neuraldbg.detect.layer_rows import COUNT, DEAD, DEAD_ROWS, DEAD_SINCE, NONFINITE, UNITS, ZEROS, Synced, flat, flow
from neuraldbg.detect.readings import Readings
from neuraldbg.nouns.layout import RECTIFIERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.nouns import Event, Layout, Step

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
    steps: int = Field(3, ge=1, description="Steps in a row before it counts. Source: our own choice.")


class DeadUnits(Synced):
    """The detector of rectified units that fired in none of the rows read over many steps."""

    name: ClassVar[str] = "dead_units"
    needs: ClassVar[frozenset[str]] = frozenset({"activation"})
    light: ClassVar[bool] = False

    def __init__(self, thresholds: DeadUnitsThresholds | None = None) -> None:
        super().__init__()
        self.thresholds = thresholds or DeadUnitsThresholds()
        self._picked: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._nonfinite = self._dead_rows = self._dead_since = self._picked
        self._places: tuple[npt.NDArray[np.intp], ...] = ()
        """Indices of count, units, dead and zeros in the flattened table."""
        self._module: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
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
        self._episodes.resize(places)
        self._picked = np.array([row for _, row, _ in picked], np.intp)
        self._module = np.array([module for _, _, module in picked], np.bool_)
        self._places = tuple(flat(self._picked, stat) for stat in (COUNT, UNITS, DEAD, ZEROS))
        self._nonfinite, self._dead_rows, self._dead_since = (
            flat(self._picked, stat) for stat in (NONFINITE, DEAD_ROWS, DEAD_SINCE)
        )

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        self.sync(step, layout)
        if not len(self._picked):
            return []
        t = self.thresholds
        count, units, dead, zeros = (step.table.take(places) for places in self._places)
        # Most steps end here: no layer can be bad by the counts alone.
        full = zeros >= count
        if (
            self._episodes.idle
            and not (dead > t.share * units).any()
            and not (full.any() and (full & self._module & (count > 0)).any())
        ):
            return []
        # A NaN is neither positive nor zero: such a layer is left to the non-finite detector.
        seen = (count > 0) & (step.table.take(self._nonfinite) == 0)
        # Before enough rows were read the number of units is 0: only a layer that is zero as a whole is judged then.
        known = seen & (units > 0)
        share = np.divide(dead, units, where=known, out=np.zeros(len(units)))
        silent = self._module & seen & full
        need = np.where(units < FEW, 1.0, 0.0)
        many = known & (share >= need) & (share > t.share)
        bad = many | silent
        calm = seen & ~bad & (share < t.leave)
        rows, begin = step.table.take(self._dead_rows), step.table.take(self._dead_since)
        since = np.where(many & (dead > 0), begin, step.index).astype(np.int64)

        def describe(i: int) -> tuple[float, dict[str, Any]]:
            part = float(share[i]) if many[i] else 1.0
            details: dict[str, Any] = {"share": part, "threshold": t.share, "all_zero": bool(silent[i])}
            details |= {"zeros": float(zeros[i] / count[i]), "dead": None, "units": None, "rows": None}
            if known[i]:
                details |= {"dead": part * float(units[i]), "units": float(units[i]), "rows": float(rows[i]) or None}
            return min(0.98, 0.6 + 0.38 * (part - t.share) / max(1.0 - t.share, 1e-9)), details

        missed = self.readings.missed(step)
        return self._episodes.observe(step.index, bad, calm, describe, missed=missed, since=since)

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading steps in which no layer has many dead units or is silent."""
        self.sync(block.steps[first], block.layout)
        if not len(self._picked):
            return len(block) - first
        if not self._episodes.idle:
            return 0
        count, units, dead, zeros = (block.take(places, first) for places in self._places)
        loud = (dead > self.thresholds.share * units) | (self._module & (zeros >= count) & (count > 0))
        return steps_before(loud)

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return self._episodes.ongoing()
