"""Hidden units of a bounded activation are at its bounds, where its derivative is almost zero.

Judged on sigmoids, tanhs and their hard versions as modules, and on layers whose output goes into a functional sigmoid
or tanh first. The last activation of a model is not judged: a confident classifier and a generator's flat background
saturate for good reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.block import steps_before
from neuraldbg.detect.episodes import Episodes
from neuraldbg.detect.layer_rows import COUNT, NONFINITE, SATURATED, Synced, flat, flow
from neuraldbg.detect.readings import Readings
from neuraldbg.nouns.layout import BOUNDED, BOUNDED_OPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.nouns import Event, Layer, Layout, Step

    Floats = npt.NDArray[np.float64]


class SaturationThresholds(Thresholds):
    """The thresholds of the share of saturated elements of a layer."""

    share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of elements at a bound. Source: SageMaker Debugger, SaturatedActivation, threshold_layer"
        " 50.",
    )
    leave: float = Field(
        0.4, ge=0, le=1, description="Share at which the episode ends. Source: our own choice of hysteresis."
    )
    steps: int = Field(5, ge=1, description="Steps in a row before it counts. Source: our own choice.")


class Saturation(Synced):
    """The detector of hidden units at the bounds of their activation."""

    name: ClassVar[str] = "saturation"
    needs: ClassVar[frozenset[str]] = frozenset({"activation"})
    light: ClassVar[bool] = False

    def __init__(self, thresholds: SaturationThresholds | None = None) -> None:
        super().__init__()
        self.thresholds = t = thresholds or SaturationThresholds()
        self._picked: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._count = self._saturated = self._picked
        """Indices of count (``_count``) and saturated (``_saturated``) in the flattened table."""
        self._types: tuple[str, ...] = ()
        self.readings = Readings()
        self._episodes = Episodes("saturated_units", "activation_regime", enter_steps=t.steps, leave_steps=3)

    def build(self, layout: Layout, rows: int) -> None:
        """Pick the bounded hidden activations in data-flow order."""
        position = flow(layout)
        last: dict[str, int] = {}
        for layer in layout.layers:
            if layer.params and layer.path in layout.called:
                last[layer.model] = max(last.get(layer.model, -1), position[layer.path][0])
        picked: list[tuple[tuple[int, int], int, str]] = []
        for row in layout.rows("activation"):
            found = layout.by_path.get(layout.sites[row].module) if row < rows else None
            if found is None or position[found.path][0] >= last.get(found.model, -1):
                continue
            name = _bounded(found, layout.following_ops.get(found.path, frozenset()))
            if name:
                picked.append((position[found.path], row, name))
        picked.sort()
        sites = [layout.sites[row] for _, row, _ in picked]
        self._episodes.resize([(site.module, f"activation/{site.label}") for site in sites])
        self._picked = np.array([row for _, row, _ in picked], np.intp)
        self._count, self._saturated = flat(self._picked, COUNT), flat(self._picked, SATURATED)
        self._types = tuple(name for _, _, name in picked)

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        self.sync(step, layout)
        if not len(self._picked):
            return []
        t = self.thresholds
        rows = step.table[self._picked]
        count = rows[:, COUNT]
        if self._episodes.idle and not (rows[:, SATURATED] >= t.share * count).any():
            return []
        seen = (count > 0) & (rows[:, NONFINITE] == 0)
        share = np.divide(rows[:, SATURATED], count, where=seen, out=np.zeros(len(count)))
        bad = seen & (share >= t.share)
        calm = seen & (share < t.leave)

        def describe(i: int) -> tuple[float, dict[str, Any]]:
            details = {"share": float(share[i]), "threshold": t.share, "activation": self._types[i]}
            return 0.6 + 0.35 * float(share[i] - t.share) / max(1.0 - t.share, 1e-9), details

        return self._episodes.observe(step.index, bad, calm, describe, missed=self.readings.missed(step))

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading steps in which no layer is saturated."""
        self.sync(block.steps[first], block.layout)
        if not self._episodes.idle:
            return 0
        full = block.take(self._saturated, first) >= self.thresholds.share * block.take(self._count, first)
        return steps_before(full)

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return self._episodes.ongoing()


def _bounded(layer: Layer, ops: frozenset[str]) -> str:
    """Return the name of the bounded activation that the layer is or goes into, "" if there is none."""
    return layer.type if layer.type in BOUNDED else next(iter(sorted(ops & BOUNDED_OPS)), "")
