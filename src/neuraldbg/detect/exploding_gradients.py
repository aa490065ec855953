"""A layer's gradient has grown out of all proportion.

Four ways (`how` in the details): `history`: far above its own level and above everything that any layer had while all
was well; `absolute`: large, far above the run's own start, with a loss worse than at the start; `relative`: it grows
geometrically from the loss toward the input, over at least four layers; `size`: beyond a million in any single step. A
large norm alone is no fault, as a summed loss or unnormalised targets have large gradients that train well: `size` has
a confidence below that of a symptom, so it is reported and no cause rests on it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.block import follow, steps_before
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

SETTLED = 5
"""Gradients of a layer after which its level is used."""
BY_SIZE = 0.4
"""Confidence of a gradient that is large and shows no other sign: below that of a symptom."""


class ExplodingThresholds(Thresholds):
    """The thresholds of an exploding gradient, for each of the three ways."""

    growth: float = Field(
        100.0,
        gt=1,
        description="Against the layer's own level (a moving mean of log norms). Source: our own choice, far above "
        "the factor of 10 that restarts and hard batches give.",
    )
    above_peak: float = Field(
        10.0,
        gt=1,
        description="Against the largest norm of any layer while all was well, so that going back to the gradients "
        "of the start is no explosion. Source: our own choice.",
    )
    sudden: float = Field(
        1e3,
        gt=1,
        description="Growth that counts within the first steps, before there is a level. Source: our own choice.",
    )
    norm: float = Field(
        1e3, gt=0, description="L2 norm for `absolute`, an order above Neural Observer's trigger of 100."
    )
    own_start: float = Field(
        10.0, gt=1, description="`absolute` also asks for this growth since the first step. Source: our own choice."
    )
    depth_ratio: float = Field(
        1e3,
        gt=1,
        description="Growth from the loss to the input for `relative`. Source: AutoTrainer takes 70 between the "
        "norms of first and last layer; an order more by our own choice, and a geometric trend, as "
        "single ratios of 10 to 100 are common in healthy nets.",
    )
    trend: float = Field(
        0.9,
        gt=0,
        le=1,
        description="Correlation of log norm with depth for `relative`. Source: geometric growth is a line.",
    )
    size: float = Field(
        1e6,
        gt=0,
        description="L2 norm of one layer for `size`. Source: our own choice, three orders above `norm`.",
    )
    steps: int = Field(3, ge=1, description="Steps in a row before it counts. Source: one step is a gradient spike.")
    memory: int = Field(50, ge=2, description="Time constant of the level, in steps. Source: our own choice.")


class ExplodingGradients:
    """The detector of layers whose gradient has grown out of all proportion."""

    name: ClassVar[str] = "exploding_gradients"
    needs: ClassVar[frozenset[str]] = frozenset({"param_grad"})
    light: ClassVar[bool] = False

    def __init__(self, thresholds: ExplodingThresholds | None = None) -> None:
        self.thresholds = t = thresholds or ExplodingThresholds()
        self.readings = Readings()
        self._layers: tuple[str, ...] = ()
        self._level: Floats = np.zeros(0)
        self._seen: Floats = np.zeros(0)
        self._first: Floats = np.zeros(0)
        self._old = False
        """True if every layer was read in at least ``memory`` steps."""
        self._by_depth: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._peak: dict[int, float] = {}
        self._episodes = Episodes("exploding_gradients", "gradient_health", enter_steps=t.steps, leave_steps=3)
        self._sized = Weaker(Episodes("exploding_gradients", "gradient_health", leave_steps=3), self._episodes)

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        progress, grads = self.readings.progress.observe(step), self._synced(step, layout)
        if not self._layers:
            return []
        t = self.thresholds
        norms, peak = grads.norms(step), self._peak.get(step.stream, 0.0)
        if self._old and self._idle and self._calm(step.stream, norms, peak):
            return []
        large: npt.NDArray[np.bool_] = norms > t.size
        by_size = functools.partial(self._describe_size, norms)
        # A layer is bad by its own history, by absolute size, or by its place in a geometric growth over depth.
        usable: npt.NDArray[np.bool_] = norms > 0
        log = np.log(norms, where=usable, out=np.full(len(norms), -np.inf))
        rise = np.where(self._seen > 0, log - self._level, 0.0)
        history, absolute = self._grown(norms, rise, peak, progress)
        bad = history | absolute
        relative = self._relative(log, usable)
        if relative is not None:
            bad = bad | relative
        if not bad.any():
            self._learn(step.stream, norms, log, usable)
            calm = usable & (rise < 0.5 * np.log(t.growth)) & ~self._still_steep(log)
            missed = self.readings.missed(step)
            events = self._episodes.observe(step.index, bad, calm, lambda _: (0.0, {}), missed=missed)
            return self._sized.observe(step.index, large, usable & ~large, by_size, events)
        # Bad gradients are kept out of the level and the peak: they would become the norm that they are judged by.
        self._learn(step.stream, norms, log, usable & ~bad)
        deepest = int(np.flatnonzero(bad)[-1])

        def describe(i: int) -> tuple[float, dict[str, Any]]:
            how = "history" if history[i] else "absolute" if absolute[i] else "relative"
            return self._describe(i, how, norms, rise, deepest=deepest, peak=peak)

        if relative is not None:
            self._by_depth |= relative
        calm = usable & ~bad & (rise < 0.5 * np.log(t.growth)) & ~self._still_steep(log)
        certain = bad & grads.nonfinite(step)
        events = self._episodes.observe(step.index, bad, calm, describe, certain, missed=self.readings.missed(step))
        return self._sized.observe(step.index, large, usable & ~large, by_size, events)

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading steps for which `_calm` would be True."""
        self._synced(block.steps[first], block.layout)
        if not self._layers:
            return len(block) - first
        if not (self._old and self._idle):
            return 0
        t, norms, peak = self.thresholds, self.readings.norms_of(block)[first:], self._peak.get(block.stream, 0.0)
        fine, steps = steps_before(~(norms > 0.0)), 0
        if len(self._layers) > 4:
            fine = min(fine, steps_before(norms[:, 1:2] >= 0.99 * t.depth_ratio * norms[:, -1:]))
        for top in norms[:fine].max(axis=1).tolist():
            if not top <= min(t.above_peak * peak, t.size):
                break
            if top > peak:
                peak = self._peak[block.stream] = top
            steps += 1
        follow(self._level, np.log(norms[:steps]), t.memory)
        return steps

    def _synced(self, step: Step, layout: Layout) -> GradLayers:
        return self.readings.layers.synced(step, layout, self._layers, self._grow)

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return self._sized.ongoing()

    @property
    def _idle(self) -> bool:
        return self._episodes.idle and self._sized.idle

    def _calm(self, stream: int, norms: Floats, peak: float) -> bool:
        """Return True, and learn from the step, if the largest norms alone show that no layer is bad."""
        top = float(norms.max())
        # A layer that was not read is NaN, which compares as false.
        if not (norms.min() > 0.0 and top <= min(self.thresholds.above_peak * peak, self.thresholds.size)):
            return False
        if len(norms) > 4 and norms[1] >= 0.99 * self.thresholds.depth_ratio * norms[-1]:
            return False
        self._level += (np.log(norms) - self._level) / self.thresholds.memory
        if top > peak:
            self._peak[stream] = top
        return True

    def _grown(
        self, norms: Floats, rise: Floats, peak: float, progress: Progress | None
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return masks of the layers far above their own level, and of those that are large while the loss is worse
        than at the start.
        """
        t = self.thresholds
        above = (norms > t.above_peak * peak) & (self._seen > 0)
        if not above.any():
            return above, above
        history = above & (rise > np.where(self._seen >= SETTLED, np.log(t.growth), np.log(t.sudden)))
        worse = progress is not None and not progress.level <= progress.start
        return history, above & (norms > t.norm) & (norms > t.own_start * self._first) & worse

    def _relative(self, log: Floats, usable: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the layers on the input side if the norms grow geometrically toward it; None if not.

        The first layer is left out: its gradient scales with the input, which depends on the data.
        """
        rows = np.asarray(np.flatnonzero(usable)[1:], np.intp)
        if len(rows) < 4:
            return None
        values = log[rows]
        bar = float(np.log(self.thresholds.depth_ratio))
        if values[0] - values[-1] < bar:
            return None
        if -np.corrcoef(np.arange(len(values)), values)[0, 1] < self.thresholds.trend:
            return None
        mask = np.zeros(len(log), np.bool_)
        mask[rows] = values - values[-1] > bar
        return mask

    def _still_steep(self, log: Floats) -> npt.NDArray[np.bool_]:
        """Return a mask of the layers of a `relative` event whose growth is still half as steep, in logarithms."""
        if not self._by_depth.any():
            return self._by_depth
        self._by_depth &= log - log[-1] > 0.5 * np.log(self.thresholds.depth_ratio)
        return self._by_depth

    def _learn(self, stream: int, norms: Floats, log: Floats, good: npt.NDArray[np.bool_]) -> None:
        if not good.any():
            return
        self._seen += good
        self._old = bool((self._seen >= self.thresholds.memory).all())
        new = good & (self._seen == 1)
        self._first[new] = norms[new]
        weight = 1.0 / np.minimum(np.maximum(self._seen, 1.0), self.thresholds.memory)
        self._level += np.where(good, weight * (np.where(good, log, 0.0) - self._level), 0.0)
        self._peak[stream] = max(self._peak.get(stream, 0.0), float(norms[good].max()))

    def _grow(self, layers: tuple[str, ...]) -> None:
        for name in ("_level", "_seen", "_first"):
            setattr(self, name, carry(self._layers, layers, getattr(self, name), 0.0))
        self._by_depth = carry(self._layers, layers, self._by_depth, 0)
        self._layers, self._old = layers, False
        places = [(layer, f"param_grad/{layer}") for layer in layers]
        self._episodes.resize(places)
        self._sized.resize(places)

    def _describe_size(self, norms: Floats, i: int) -> tuple[float, dict[str, Any]]:
        size = self.thresholds.size
        details = {"how": "size", "norm": float(norms[i]), "threshold": size}
        return BY_SIZE, {**details, "origin": i == int(np.flatnonzero(norms > size)[-1])}

    def _describe(
        self, i: int, how: str, norms: Floats, rise: Floats, *, deepest: int, peak: float
    ) -> tuple[float, dict[str, Any]]:
        t = self.thresholds
        growth = float(np.exp(min(rise[i], 700.0)))
        details: dict[str, Any] = {
            "how": how,
            "norm": float(norms[i]),
            "growth": growth,
            "peak_before": peak,
            "origin": i == deepest,
            "threshold": {"history": t.growth, "absolute": t.norm, "relative": t.depth_ratio}[how],
        }
        if how == "relative":
            last = np.flatnonzero(norms > 0)[-1]
            details["ratio"] = float(norms[i] / norms[last])
            details["reference_layer"] = self._layers[int(last)]
            return 0.8, details
        return min(0.99, 0.8 + 0.05 * float(np.log10(max(growth / t.growth, 1.0)))), details
