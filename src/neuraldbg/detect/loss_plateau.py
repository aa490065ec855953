"""The loss does not improve over a long window: it never has, or it has stopped.

The whole run is kept as at most 64 block means of equal length (blocks are merged when there are too many), so the
window grows with the run: it is the later half. No improvement means: the gain of a straight line through the window is
not significant against the scatter of its blocks, or is smaller than the loss's own noise from step to step. A loss
whose blocks jump, further apart than that noise explains and by a large part of their level, is no plateau. The level
of a loss that takes both signs (policy gradients), or competes with another optimizer's (GAN), means nothing and is not
judged, and neither is a window in which the learning rate still rises (warm-up). A plateau after learning
(`after_learning`) is how a converged run looks: it has low confidence.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.episodes import Episode
from neuraldbg.detect.progress import START
from neuraldbg.detect.readings import Readings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.detect.progress import Progress
    from neuraldbg.nouns import Event, Layout, Step

BLOCKS = 64
"""Block means at most; even."""
CHANGES = 128
"""Newest changes from loss to loss whose median is the noise."""
OUT_OF_NOISE = 10.0
"""Improvement, in units of the noise, above which it is not chance."""
MEDIAN_OF_DIFF = 0.954
"""Median absolute difference of two normal values, in standard deviations: 0.6745 times the root of 2."""


class LossPlateauThresholds(Thresholds):
    """The thresholds of a loss that does not improve."""

    steps: int = Field(
        100,
        ge=16,
        description="Losses before it is judged, half of them the window. Source: our own choice; SageMaker "
        "Debugger's LossNotDecreasing looks back 10 steps, which is within the noise of any batch.",
    )
    sigmas: float = Field(
        1.0,
        gt=0,
        description="Standard errors below zero at which a slope is an improvement. Source: our own choice; one is "
        "lenient, as a wrong alarm costs more than a late one.",
    )
    noise: float = Field(
        0.5, gt=0, description="Least gain over the window, in units of the step-to-step noise. Source: our own choice."
    )
    share: float = Field(
        0.005,
        ge=0,
        description="Least gain over the window, as a share of the starting level. Source: SageMaker Debugger's "
        "LossNotDecreasing asks for 0.1 percent a step pair; half a percent over a long window is far "
        "less.",
    )
    learned: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="Fall from the start, as a share of it, after which a plateau is one after learning. Source: "
        "our own choice; chance level is within a few percent of the start.",
    )
    signs: float = Field(
        0.05, ge=0, le=0.5, description="Share of the rarer sign from which a loss has both. Source: our own choice."
    )
    jumps: float = Field(
        0.3,
        gt=0,
        description="Scatter of the blocks of the window, as a share of its level, from which the loss jumps instead "
        "of resting, if its noise from step to step explains less than half of it. Source: our own choice.",
    )
    certain_after: int = Field(
        1000, ge=1, description="Losses after which a run that never improved is sure. Source: our own choice."
    )


class _Stream:
    """The loss of one optimizer as means over blocks of steps."""

    def __init__(self, begun: tuple[int, float]) -> None:
        self.begun = begun
        """The first finite loss, with its step."""
        self.last = math.nan
        self.means: list[float] = []
        self.rates: list[float] = []
        self.firsts: list[int] = []
        self.size = 4
        self.changes: deque[float] = deque(maxlen=CHANGES)
        self.sum = self.rate = 0.0
        self.inside = self.count = self.negative = 0
        self.first = 0
        self.details: dict[str, Any] = {}
        self.confidence = 0.0
        self.episode = Episode("loss_plateau", "loss", leave_steps=3)
        self.episode.site = "loss"

    def add(self, index: int, loss: float, rate: float) -> bool:
        """Add a loss. Return True if a block is full."""
        if self.inside == 0:
            self.first = index
        if self.count:
            self.changes.append(loss - self.last)
        self.last = loss
        self.count += 1
        self.inside += 1
        self.sum += loss
        if loss < 0:
            self.negative += 1
        if rate > self.rate:
            self.rate = rate
        if self.inside < self.size:
            return False
        self.means.append(self.sum / self.inside)
        self.rates.append(self.rate)
        self.firsts.append(self.first)
        self.inside, self.sum, self.rate = 0, 0.0, 0.0
        # Neighbours are merged, so that memory stays constant and blocks keep equal lengths.
        if len(self.means) == BLOCKS:
            self.means = [(a + b) / 2 for a, b in zip(self.means[::2], self.means[1::2], strict=True)]
            self.rates = [max(a, b) for a, b in zip(self.rates[::2], self.rates[1::2], strict=True)]
            self.firsts = self.firsts[::2]
            self.size *= 2
        return True


class LossPlateau:
    """The detector of losses that do not improve over a long window."""

    name: ClassVar[str] = "loss_plateau"
    needs: ClassVar[frozenset[str]] = frozenset()
    light: ClassVar[bool] = True

    def __init__(self, thresholds: LossPlateauThresholds | None = None) -> None:
        self.thresholds = thresholds or LossPlateauThresholds()
        self.readings = Readings()
        self._streams: dict[int, _Stream] = {}

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:  # noqa: ARG002
        """Judge one step."""
        loss = step.scalars.get("loss")
        if loss is None or not math.isfinite(loss):
            return []
        stream = self._streams.get(step.stream)
        if stream is None:
            stream = self._streams[step.stream] = _Stream((step.index, loss))
        progress = self.readings.progress.observe(step)
        full = stream.add(step.index, loss, step.scalars.get("lr", 0.0))
        if not full or stream.count < self.thresholds.steps or len(self._streams) > 1:
            return []
        assert progress is not None
        flat, since = self._judge(stream, progress)
        return stream.episode.observe(
            step.index, flat, not flat, lambda: (stream.confidence, stream.details), since=since
        )

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return [event for stream in self._streams.values() for event in stream.episode.ongoing()]

    def _judge(self, stream: _Stream, progress: Progress) -> tuple[bool, int]:
        """Return True if the later half of the run is flat, and the first step of the plateau."""
        t = self.thresholds
        share = stream.negative / stream.count
        half = len(stream.means) // 2
        if t.signs < share < 1 - t.signs or stream.rates[-1] > 1.1 * stream.rates[half] > 0:
            return False, 0
        # A least-squares line through the block means: its slope, and the standard error of the slope.
        window = np.array(stream.means[half:])
        at = np.arange(len(window)) - (len(window) - 1) / 2
        slope = float(at @ window / (at @ at))
        scatter = window - window.mean() - slope * at
        error = math.sqrt(float(scatter @ scatter) / max(len(window) - 2, 1) / float(at @ at))
        noise = sorted(map(abs, stream.changes))[len(stream.changes) // 2] / MEDIAN_OF_DIFF
        gain, change = -slope * len(window), float(window.mean()) - progress.start
        significant = slope < -t.sigmas * error
        flat = not significant or (gain < t.noise * noise and gain < t.share * abs(progress.start))
        flat = flat or gain < 0.1 * t.share * abs(progress.start)
        spread = math.sqrt(float(scatter @ scatter) / max(len(window) - 2, 1))
        if spread > max(2.0 * noise / math.sqrt(stream.size), t.jumps * abs(float(window.mean()))):
            flat = False  # it jumps
        if change > max(3.0 * noise, 0.1 * abs(progress.start)):
            flat = False  # the loss is above its start: that is divergence, or a loss that measures something else
        if not flat:
            return False, 0
        # The start is a mean of START losses; the fall must exceed two of its standard errors.
        after = -change > max(t.learned * abs(progress.start), 2.0 * noise / math.sqrt(START))
        never = -change < max(0.02 * abs(progress.start), noise)
        length = stream.size * len(window)
        stream.details = {
            "improvement": -change,
            "improvement_share": -change / abs(progress.start) if progress.start else None,
            "start": stream.begun[1],
            "start_step": stream.begun[0],
            "start_level": progress.start,
            "level": float(window.mean()),
            "best": progress.best,
            "window": length,
            "noise": noise,
            "slope": slope / stream.size,
            "slope_error": error / stream.size,
            "after_learning": after,
            "never_improved": never,
        }
        sure = min(1.0, math.log10(stream.count / t.steps + 1e-9) / math.log10(max(t.certain_after / t.steps, 1.0001)))
        # If the noise is as large as a tenth of the starting level, it may hide an improvement as well.
        clear = 1.0 / (1.0 + noise / (0.1 * abs(progress.start))) if progress.start else 0.0
        stream.confidence = 0.2 if after else clear * (0.5 + 0.4 * max(sure, 0.0))
        if -change > OUT_OF_NOISE * noise:  # a small share of a large offset may be all there was to learn
            stream.confidence = min(stream.confidence, 0.4)
        return True, stream.firsts[0] if never else stream.firsts[half]
