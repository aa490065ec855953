"""The gradient norm of one step stands far above those around it.

Judged on the L2 norm of all gradients of an optimizer, in logarithms, against the median and spread of its recent
norms and against the largest of them; the step that is judged enters the baseline afterwards, and a spike never does.
A spike that does not even reach the typical norm of the first steps (late in a run whose gradients became small) is
harmless and not reported. The layer named is the one whose gradient rose most against its own level; a spike that
begins in a light step, where only the norm over all layers is known, has none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.block import follow, steps_before
from neuraldbg.detect.episodes import Episode, carry
from neuraldbg.detect.progress import Window
from neuraldbg.detect.readings import Readings

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from neuraldbg.detect.block import Block
    from neuraldbg.detect.layer_rows import GradLayers
    from neuraldbg.nouns import Event, Layout, Step

    Floats = npt.NDArray[np.float64]


MEMORY = 50.0
"""Time constant, in steps read, of a layer's level."""


class GradientSpikeThresholds(Thresholds):
    """The thresholds of a spike of the gradient norm."""

    sigmas: float = Field(
        6.0, gt=0, description="Robust standard deviations of the log norm above its median. Source: our own choice."
    )
    factor: float = Field(
        10.0,
        gt=1,
        description="Against the median norm. Source: our own choice.",
    )
    above_high: float = Field(3.0, gt=1, description="Against the largest norm of the window. Source: our own choice.")
    of_start: float = Field(
        0.5,
        ge=0,
        description="Share of the typical norm of the first window that it must reach. Source: our own choice.",
    )
    history: int = Field(
        20, ge=5, description="Steps of one optimizer before its norms are judged. Source: our own choice."
    )
    window: int = Field(128, ge=20, description="Steps in the baseline. Source: our own choice.")
    patience: int = Field(
        32,
        ge=1,
        description="Steps after which a higher level becomes the baseline. Source: a quarter of the window,"
        " which the quartiles bear.",
    )


class _Stream:
    """The baseline of recent gradient norms of one optimizer."""

    def __init__(self, t: GradientSpikeThresholds) -> None:
        self.window = Window(t.window)
        self.least = 0.5 * math.log(t.factor)
        """Rise of the log norm below which a step is calm, whatever the spread."""
        self.start = math.nan
        """Typical log norm of the first window. NaN until it is known."""
        self.held = 0
        """Number of bad steps in a row."""
        self.episode = Episode("gradient_spike", "gradient_health", leave_steps=2)

    @property
    def settled(self) -> bool:
        """True if the norms are judged, and none was a spike just now."""
        return not (math.isnan(self.start) or self.episode.run or self.episode.active)


class GradientSpike:
    """The detector of single steps whose gradient norm stands far above those around."""

    name: ClassVar[str] = "gradient_spike"
    needs: ClassVar[frozenset[str]] = frozenset({"param_grad"})
    light: ClassVar[bool] = True

    def __init__(self, thresholds: GradientSpikeThresholds | None = None) -> None:
        self.thresholds = thresholds or GradientSpikeThresholds()
        self.readings = Readings()
        self._old = False
        """True if every layer was read in at least MEMORY steps."""
        self._layers: tuple[str, ...] = ()
        self._level: Floats = np.zeros(0)
        self._seen: Floats = np.zeros(0)
        self._streams: dict[int, _Stream] = {}

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:
        """Judge one step."""
        norm, norms = step.scalars.get("grad_norm"), None
        if len(step.table):
            norms = self._synced(step, layout).norms(step)
            if norm is None:
                norm = float(np.sqrt(np.nansum(norms * norms)))
        if norm is None or not 0.0 < norm < math.inf:
            return []
        stream = self._streams.get(step.stream)
        if stream is None:
            stream = self._streams[step.stream] = _Stream(self.thresholds)
        return self._judge(step, stream, norm, norms)

    def pass_over(self, block: Block, first: int) -> int:
        """Pass over the leading steps whose norm does not stand out, once there is a baseline."""
        self._synced(block.steps[first], block.layout)
        stream = self._streams.get(block.stream)
        if stream is None or not self._old or not stream.settled or len(stream.window) < self.thresholds.history:
            return 0
        norms = self.readings.norms_of(block)[first:]
        seen = steps_before(~(norms > 0.0))
        window, ordered, steps = stream.window, stream.window.ordered, 0
        for step in block.steps[first : first + seen]:
            norm = step.scalars.get("grad_norm")
            if norm is None or not 0.0 < norm < math.inf:
                break
            log = math.log(norm)
            if not log - ordered[len(ordered) >> 1] < stream.least:
                break
            window.add(log)
            steps += 1
        follow(self._level, np.log(norms[:steps]), MEMORY)
        return steps

    def _synced(self, step: Step, layout: Layout) -> GradLayers:
        return self.readings.layers.synced(step, layout, self._layers, self._grow)

    def _grow(self, layers: tuple[str, ...]) -> None:
        self._level = carry(self._layers, layers, self._level, 0.0)
        self._seen = carry(self._layers, layers, self._seen, 0.0)
        self._layers, self._old = layers, False

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return [event for stream in self._streams.values() for event in stream.episode.ongoing()]

    def _judge(self, step: Step, stream: _Stream, norm: float, norms: Floats | None) -> list[Event]:
        t, window, log = self.thresholds, stream.window, math.log(norm)
        # Without a baseline nothing is judged.
        ordered = window.ordered
        if len(ordered) < t.history:
            window.add(log)
            self._learn(norms)
            return []
        median = ordered[len(ordered) >> 1]
        if math.isnan(stream.start):
            stream.start = median
        # Nearly all steps end here, without the cost of the spread.
        rise, episode = log - median, stream.episode
        if rise < stream.least and not episode.run and not episode.active:
            stream.held = 0
            window.add(log)
            if norms is not None:
                self._learn(norms)
            return []
        bar = max(t.sigmas * window.sigma, math.log(t.factor))
        bad = rise > bar and log > window.high + math.log(t.above_high) and norm > t.of_start * math.exp(stream.start)
        calm = rise < 0.5 * bar
        # While a spike lasts, each step far above the median belongs to it, even if it is not the highest.
        bad = bad or (episode.active and rise > bar)
        if bad and not episode.active:
            layer, details = self._origin(norms)
            episode.layer = layer
            episode.site = f"param_grad/{layer}" if layer is not None else ""
            sigma = window.sigma
            details |= {
                "at_step": step.index,
                "norm": norm,
                "median": math.exp(median),
                "ratio": math.exp(min(rise, 700.0)),
            }
            details |= {
                "sigmas": rise / sigma if sigma > 0 else None,
                "threshold": math.exp(bar),
                "stream": step.stream,
            }
            self._details = details
        events = episode.observe(step.index, bad, calm, lambda: (self._confidence(rise, bar), dict(self._details)))
        # A level that holds for ``patience`` steps is the new normal: it enters the baseline.
        stream.held = stream.held + 1 if bad else 0
        if not bad or stream.held > t.patience:
            window.add(log)
            self._learn(norms)
        return events

    @staticmethod
    def _confidence(rise: float, bar: float) -> float:
        return min(0.98, 0.7 + 0.14 * (rise / bar - 1.0))

    def _learn(self, norms: Floats | None) -> None:
        """Update the moving mean of each layer's log norm; ``norms`` is None for a light step."""
        if norms is None:
            return
        if self._old and norms.min(initial=math.inf) > 0.0:
            self._level += (np.log(norms) - self._level) / MEMORY
            return
        seen = norms > 0
        self._seen += seen
        self._old = bool((self._seen >= MEMORY).all())
        weight = 1.0 / np.minimum(np.maximum(self._seen, 1.0), MEMORY)
        log = np.log(norms, where=seen, out=self._level.copy())
        self._level += weight * (log - self._level)

    def _origin(self, norms: Floats | None) -> tuple[str | None, dict[str, Any]]:
        """Return the layer that rose most against its own level, None if unknown, and the five largest factors."""
        if norms is None:
            return None, {}
        known = (norms > 0) & (self._seen >= 5)
        if not known.any():
            return None, {}
        rises = np.where(known, np.log(norms, where=known, out=np.zeros(len(norms))) - self._level, -np.inf)
        order = np.argsort(-rises, kind="stable")[:5].tolist()
        factors = {self._layers[i]: float(np.exp(min(rises[i], 700.0))) for i in order if np.isfinite(rises[i])}
        return self._layers[order[0]], {"layers": factors}
