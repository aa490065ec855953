"""A layer's gradient is so small that it cannot learn, although the loss is not settled.

Judged on weight matrices, a layer at a time, in three ways (`how` in the details): `relative`: many orders below the
layers nearer to the loss; `absolute`: below what float32 training can use, in all layers; `history`: many orders below
what the layer had, all layers together (a net that died). A run that has converged has tiny gradients everywhere and
is healthy: if the loss has settled, only `relative` is judged. A layer whose gradient is growing back (branches and
heads in their first steps that were initialised to zero) is not judged yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field

from neuraldbg.config import Thresholds
from neuraldbg.detect.block import steps_before
from neuraldbg.detect.episodes import Episodes, carry
from neuraldbg.detect.readings import Readings

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.detect.layer_rows import GradLayers
    from neuraldbg.nouns import Event, Layout, Step

    Floats = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]

EARLY = 10
"""Gradients of a layer whose mean is its early level."""


class VanishingThresholds(Thresholds):
    """The thresholds of a vanished gradient, for each of the three ways."""

    floor: float = Field(
        1e-7,
        gt=0,
        description="RMS gradient below which it has vanished. Source: SageMaker Debugger, VanishingGradient.",
    )
    ratio: float = Field(
        1e-4,
        gt=0,
        lt=1,
        description="RMS gradient against the largest of the layers nearer to the loss. Source: AutoTrainer uses "
        "1e-3 between the norms of first and last layer; one order stricter by our own choice, silent "
        "on the healthy programs it was tried on.",
    )
    ratio_floor: float = Field(
        1e-6,
        gt=0,
        description="`ratio` counts for RMS gradients below this. Source: AutoTrainer pairs its ratio with a norm "
        "below 1e-4, which is an RMS of 1e-6 for a matrix of 10,000 weights.",
    )
    drop: float = Field(
        1e-4, gt=0, lt=1, description="Against the layer's own early gradient (`history`). Source: as `ratio`."
    )
    leave: float = Field(
        3.0,
        ge=1,
        description="Factor above a threshold at which the episode ends. Source: our own choice of hysteresis.",
    )
    steps: int = Field(
        10,
        ge=1,
        description="Steps in a row before it counts. Source: zero-initialised branches need some steps to open.",
    )
    growing: float = Field(
        10.0,
        gt=1,
        description="A gradient that grew by this factor while it was counted is coming back. Source: our own choice.",
    )


class VanishingGradients:
    """The detector of layers whose gradient is too small to learn from."""

    name: ClassVar[str] = "vanishing_gradients"
    needs: ClassVar[frozenset[str]] = frozenset({"param_grad"})
    light: ClassVar[bool] = False

    def __init__(self, thresholds: VanishingThresholds | None = None) -> None:
        self.thresholds = t = thresholds or VanishingThresholds()
        self.readings = Readings()
        self._layers: tuple[str, ...] = ()
        self._early: Floats = np.zeros(0)
        self._seen: Floats = np.zeros(0)
        self._at_start: Floats = np.zeros(0)
        self._early_top = 0.0
        self._learned = False
        """True once the early level of every layer is known."""
        self._episodes = Episodes("vanishing_gradients", "gradient_health", enter_steps=t.steps, leave_steps=3)

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        progress, grads = self.readings.progress.observe(step), self._synced(step, layout)
        if not self._layers:
            return []
        t = self.thresholds
        rms = grads.rms(step)
        bottom = float(np.fmin.reduce(rms))
        if self._learned and self._episodes.idle and bottom > self._least:
            return []
        if grads.nonfinite(step).any():
            return []  # moments are over the finite gradients: the rest of them means nothing
        # Each layer is compared with the largest gradient of the layers nearer to the loss.
        usable = np.isfinite(rms)
        reference = np.full(len(rms), np.nan)
        reference[:-1] = np.fmax.accumulate(rms[::-1])[::-1][1:]
        self._learn(rms, usable)
        relative = (rms < t.ratio * reference) & (rms < t.ratio_floor)
        settled = progress is not None and progress.learned(0.05)
        top = float(np.fmax.reduce(rms)) if usable.any() else np.nan
        # All layers together: below the floor, or far below their early levels. A settled loss explains both.
        low = not settled and (top < t.floor or bool((rms[usable] < t.drop * self._early[usable]).all()))
        absolute = usable & low
        bad = relative | absolute
        calm = (
            usable
            & ~bad
            & (rms > t.leave * t.floor)
            & ((rms > t.leave * t.ratio * reference) | (rms > t.ratio_floor) | np.isnan(reference))
        )
        # A gradient that grows while it is counted is coming back (branches initialised to zero): it is not bad.
        fresh = bad & (self._episodes.run == 0)
        self._at_start[fresh] = rms[fresh]
        back = bad & ~self._episodes.active & (rms > t.growing * self._at_start) & (rms > 0)
        if back.any():
            bad, calm = bad & ~back, calm | back
        deepest = int(np.flatnonzero(bad)[-1]) if bad.any() else -1

        def describe(i: int) -> tuple[float, dict[str, Any]]:
            how = "relative" if relative[i] else "absolute" if top < t.floor else "history"
            return self._describe(i, how, rms, reference, deepest)

        return self._episodes.observe(step.index, bad, calm, describe, missed=self.readings.missed(step))

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading steps in which no gradient is small."""
        grads = self._synced(block.steps[first], block.layout)
        if not self._layers:
            return len(block) - first
        if not (self._learned and self._episodes.idle):
            return 0
        # A layer that was not read is NaN, which compares as false: not small.
        return steps_before(grads.rms_of(block, first) <= self._least)

    @property
    def _least(self) -> float:
        """RMS gradient above which no layer can be bad in any of the three ways."""
        t = self.thresholds
        return max(t.ratio_floor, t.floor, t.drop * self._early_top)

    def _synced(self, step: Step, layout: Layout) -> GradLayers:
        return self.readings.matrices.synced(step, layout, self._layers, self._grow)

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return self._episodes.ongoing()

    def _learn(self, rms: Floats, usable: Bools) -> None:
        """Update the early level of each layer, the running mean of its first gradients."""
        new = usable & (self._seen < EARLY)
        if new.any():
            self._seen[new] += 1
            self._early[new] += (rms[new] - self._early[new]) / self._seen[new]
            self._early_top = float(self._early.max())
            self._learned = bool((self._seen >= EARLY).all())

    def _grow(self, layers: tuple[str, ...]) -> None:
        for name in ("_early", "_seen", "_at_start"):
            setattr(self, name, carry(self._layers, layers, getattr(self, name), 0.0))
        self._layers, self._learned = layers, False
        self._episodes.resize([(layer, f"param_grad/{layer}") for layer in layers])

    def _describe(self, i: int, how: str, rms: Floats, reference: Floats, deepest: int) -> tuple[float, dict[str, Any]]:
        t = self.thresholds
        details: dict[str, Any] = {
            "how": how,
            "rms": float(rms[i]),
            "floor": t.floor if how == "absolute" else t.ratio_floor,
            "zero": bool(rms[i] == 0.0),
            "origin": i == deepest,
            "early_rms": float(self._early[i]),
        }
        if how == "history":
            details["drop"] = float(rms[i] / self._early[i]) if self._early[i] > 0 else None
            details["threshold"] = t.drop
            return 0.7, details
        if np.isfinite(reference[i]) and reference[i] > 0:
            behind = np.flatnonzero(rms[i + 1 :] == reference[i])
            details["ratio"] = float(rms[i] / reference[i])
            details["reference_layer"] = self._layers[i + 1 + int(behind[0])] if len(behind) else None
        details["threshold"] = t.ratio if how == "relative" else t.floor
        if how == "absolute":
            return 0.7, details
        return min(0.98, 0.8 + 0.05 * float(-np.log10(max(details["ratio"], 1e-12) / t.ratio))), details
