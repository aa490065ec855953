"""A layer's gradient is so small that it cannot learn, although the loss is not settled.

Judged on weight matrices, a layer at a time, in four ways (`how` in the details): `relative`: many orders below the
layers nearer to the loss; `absolute`: below what float32 training can use, in all layers; `history`: many orders below
what the layer had, all layers together (a net that died); `zero`: exactly zero in all parameters of a layer of any
type, all their values read, with a confidence below that of a symptom, as a part of a model may rest; above it if no
gradient ever reached the layer and the loss has hardly fallen. If another
parameter of the layer, its bias, has a gradient that is not small, the event names the matrices (`parameters`).

A run that has converged has tiny gradients everywhere and is healthy: if the loss has settled, only `relative` is
judged, and `zero` unless the loss is settled near zero. A layer whose gradient is growing back (branches and heads in
their first steps that were initialised to zero) is not judged yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.block import steps_before
from neuraldbg.detect.episodes import Episodes, Weaker, carry
from neuraldbg.detect.readings import Readings

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.detect.layer_rows import GradLayers
    from neuraldbg.detect.progress import Progress
    from neuraldbg.nouns import Event, Layout, Step

    Floats = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]

EARLY = 10
"""Gradients of a layer whose mean is its early level."""
BY_ZERO = 0.4
"""Confidence of a gradient that is exactly zero and shows no other sign: below that of a symptom."""
NEVER_FED = 0.6
"""Confidence of a gradient that was exactly zero at every reading, while the loss has hardly fallen."""
LEARNT = 0.3
"""Share of its start by which a loss must fall for a layer without any gradient to be a part that rests."""
SOLVED = 1e-3
"""Share of its first level below which a loss leaves nothing to learn: a gradient of zero is then right."""


class VanishingThresholds(Thresholds):
    """The thresholds of a vanished gradient, for each of the four ways."""

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
    zero_steps: int = Field(
        20,
        ge=1,
        description="Steps in a row for `zero`. Source: as `zero_grad_steps` of unchanged_parameters.",
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
        self._beside: Bools = np.zeros(0, np.bool_)
        """True for layers of which another parameter had a gradient that was not small, while the matrices' was."""
        self._early_top = 0.0
        self._learned = False
        """True once the early level of every layer is known."""
        self._episodes = Episodes("vanishing_gradients", "gradient_health", enter_steps=t.steps, leave_steps=3)
        self._all: tuple[str, ...] = ()
        """Layers that are judged for `zero`: those with any parameter."""
        self._fed: Bools = np.zeros(0, np.bool_)
        """True for layers that had a gradient other than zero at any reading."""
        zero = Episodes("vanishing_gradients", "gradient_health", enter_steps=t.zero_steps, leave_steps=3)
        self._zero = Weaker(zero, self._episodes)

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        progress = self.readings.progress.observe(step)
        events = self._judge_matrices(step, layout, progress)
        # Most steps end here: in them no gradient is exactly zero.
        grads = self.readings.layers.synced(step, layout, self._all, self._grow_all)
        norms = grads.norms(step)
        zero: Bools = norms == 0
        self._fed |= norms > 0
        if self._zero.idle and not events and not zero.any():
            return []
        solved = progress is not None and abs(progress.level) <= SOLVED * abs(progress.start)
        right = solved and not (norms > 0).any()
        bad = np.zeros_like(zero) if right else zero & ~grads.nonfinite(step) & ~grads.sampled(step)
        return self._zero.observe(
            step.index,
            bad,
            (norms > 0) | (zero & ~bad),
            lambda i: self._describe_zero(i, progress),
            events,
            missed=self.readings.missed(step),
        )

    def _judge_matrices(self, step: Step, layout: Layout, progress: Progress | None) -> list[Event]:
        """Judge the weight matrices of one step."""
        grads = self._synced(step, layout)
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
        if bad.any():
            together = t.floor if top < t.floor else t.drop * self._early
            bound = np.where(relative, np.fmin(t.ratio * reference, t.ratio_floor), together)
            self._beside[fresh] = False
            self._beside |= bad & (self._whole(step, layout) > t.leave * bound)

        def describe(i: int) -> tuple[float, dict[str, Any]]:
            how = "relative" if relative[i] else "absolute" if top < t.floor else "history"
            confidence, details = self._describe(i, how, rms, reference, deepest)
            return confidence, details | ({"parameters": grads.labels(i)} if self._beside[i] else {})

        return self._episodes.observe(step.index, bad, calm, describe, missed=self.readings.missed(step))

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading steps in which no gradient is small."""
        step = block.steps[first]
        grads = self._synced(step, block.layout)
        self.readings.layers.synced(step, block.layout, self._all, self._grow_all)
        if not self._zero.idle:
            return 0
        # A layer that was not read is NaN, which compares as false: not small, and not zero.
        norms = self.readings.norms_of(block)[first:] if self._all else None
        passed = len(block) - first if norms is None else steps_before(norms == 0)
        if self._layers:
            if not (self._learned and self._episodes.idle):
                return 0
            passed = min(passed, steps_before(grads.rms_of(block, first) <= self._least))
        if norms is not None:
            self._fed |= (norms[:passed] > 0).any(axis=0)
        return passed

    def _whole(self, step: Step, layout: Layout) -> Floats:
        """Return the largest RMS gradient of all parameters of each layer that has matrices, shape (layers,)."""
        grads = self.readings.layers.synced(step, layout, self._all, self._grow_all)
        at = {layer: i for i, layer in enumerate(grads.layers)}
        return grads.rms(step)[[at[layer] for layer in self._layers]]

    @property
    def _least(self) -> float:
        """RMS gradient above which no layer can be bad in any of the three ways."""
        t = self.thresholds
        return max(t.ratio_floor, t.floor, t.drop * self._early_top)

    def _synced(self, step: Step, layout: Layout) -> GradLayers:
        return self.readings.matrices.synced(step, layout, self._layers, self._grow)

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return self._zero.ongoing()

    def _learn(self, rms: Floats, usable: Bools) -> None:
        """Update the early level of each layer, the running mean of its first gradients."""
        new = usable & (self._seen < EARLY)
        if new.any():
            self._seen[new] += 1
            self._early[new] += (rms[new] - self._early[new]) / self._seen[new]
            self._early_top = float(self._early.max())
            self._learned = bool((self._seen >= EARLY).all())

    def _grow(self, layers: tuple[str, ...]) -> None:
        for name in ("_early", "_seen", "_at_start", "_beside"):
            setattr(self, name, carry(self._layers, layers, getattr(self, name), 0.0))
        self._layers, self._learned = layers, False
        self._episodes.resize([(layer, f"param_grad/{layer}") for layer in layers])

    def _grow_all(self, layers: tuple[str, ...]) -> None:
        self._fed = carry(self._all, layers, self._fed, 0.0)
        self._all = layers
        self._zero.resize([(layer, f"param_grad/{layer}") for layer in layers])

    def _describe_zero(self, i: int, progress: Progress | None) -> tuple[float, dict[str, Any]]:
        always = not self._fed[i]
        rests = progress is not None and progress.learned(LEARNT)
        details = {"how": "zero", "rms": 0.0, "zero": True, "always": always, "steps": self.thresholds.zero_steps}
        return NEVER_FED if always and not rests else BY_ZERO, details

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
