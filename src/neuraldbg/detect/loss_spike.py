"""The loss jumps far above its recent level.

Judged by differences against the median and quartiles of the recent losses of the same optimizer, before the new loss
enters them; a loss that has always been positive is judged in logarithms too, which is the scale of its noise. A
single high batch must be the highest loss so far and has a lower confidence; with small batches it is ordinary sampling
noise and is not reported. Before there is a baseline, only a loss of a hundred times all before is a spike. After a
jump of the learning rate (a restart) the baseline is cleared.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.episodes import Episode
from neuraldbg.detect.progress import IQR_OF_SIGMA, START, Progress, Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.nouns import Event, Layout, Step


class LossSpikeThresholds(Thresholds):
    """The thresholds of a spike of the loss."""

    sigmas: float = Field(
        6.0,
        gt=0,
        description="Robust standard deviations above the median, linear and (positive losses) in logarithms. "
        "Source: our own choice; Neural Observer's 3 x moving average is wrong for losses near or below"
        " zero.",
    )
    lone: float = Field(
        4.0,
        ge=1,
        description="A single step must exceed the median by this many times the window's own range above it. "
        "Source: our own choice.",
    )
    lasting: float = Field(1.5, ge=1, description="The same for a spike of `steps` steps. Source: our own choice.")
    steps: int = Field(3, ge=2, description="Steps in a row that make a lasting spike. Source: our own choice.")
    share: float = Field(
        0.1,
        ge=0,
        description="The jump must be this share of the starting level or of all progress made. Source: our own "
        "choice.",
    )
    sudden: float = Field(
        100.0,
        gt=1,
        description="Against all before, while there is no baseline; ten times as much against one or two losses. "
        "Source: our own choice.",
    )
    small_batch: int = Field(
        16,
        ge=1,
        description="Batches up to this size get no single-step spikes. Source: our own choice: one sample is 1/16.",
    )
    restart: float = Field(
        1.5,
        gt=1,
        description="Growth of the learning rate in one step that restarts the baseline. Source: warm restarts (SGDR).",
    )
    history: int = Field(20, ge=5, description="Losses before the baseline is used. Source: our own choice.")
    window: int = Field(128, ge=20, description="Losses in the baseline. Source: our own choice.")
    patience: int = Field(
        32, ge=1, description="Steps after which a higher level is the new normal. Source: a quarter of the window."
    )


class _Stream:
    """The baseline of recent losses of one optimizer."""

    def __init__(self, t: LossSpikeThresholds, first: tuple[int, float]) -> None:
        self.first = first
        """The first finite loss, with its step."""
        self.window = Window(t.window)
        self.progress = Progress()
        self.ceiling = -math.inf
        self.largest = 0.0
        self.held = 0
        self.lr = math.nan
        self.batch = math.inf
        """Last known batch size: a light step has none. Infinite before the first."""
        self.details: dict[str, Any] = {}
        self.episode = Episode("loss_spike", "loss", enter_steps=t.steps, leave_steps=2)
        self.episode.site = "loss"


class LossSpike:
    """The detector of losses that jump far above their recent level."""

    name: ClassVar[str] = "loss_spike"
    needs: ClassVar[frozenset[str]] = frozenset()
    light: ClassVar[bool] = True

    def __init__(self, thresholds: LossSpikeThresholds | None = None) -> None:
        self.thresholds = thresholds or LossSpikeThresholds()
        self._streams: dict[int, _Stream] = {}

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:  # noqa: ARG002
        """Judge one step."""
        scalars = step.scalars
        loss = scalars.get("loss")
        if loss is None or not math.isfinite(loss):
            return []
        stream = self._streams.get(step.stream)
        if stream is None:
            stream = self._streams[step.stream] = _Stream(self.thresholds, (step.index, loss))
        # After a restart of the learning rate a higher loss is expected.
        lr = scalars.get("lr", math.nan)
        if lr != stream.lr:
            if lr > self.thresholds.restart * stream.lr and len(stream.window) >= self.thresholds.history:
                stream.window.clear()
            stream.lr = lr
        if "batch_size" in scalars:
            stream.batch = scalars["batch_size"]
        ordered, episode, progress = stream.window.ordered, stream.episode, stream.progress
        count = len(ordered)
        # Nearly all losses are no spike, whatever the scatter, and none lasts: then the quartiles are not computed.
        if (
            count >= self.thresholds.history
            and loss - ordered[count >> 1] <= self.thresholds.share * abs(progress.start)
            and not (episode.active or episode.run)
        ):
            stream.window.add(loss)
            progress.add(loss)
            if abs(loss) > stream.largest:
                stream.largest = abs(loss)
            stream.held, events = 0, []
        else:
            events = self._judge(step, stream, loss)
        if loss > stream.ceiling:
            stream.ceiling = loss
        return events

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return [event for stream in self._streams.values() for event in stream.episode.ongoing()]

    def _judge(self, step: Step, stream: _Stream, loss: float) -> list[Event]:
        t, window, episode = self.thresholds, stream.window, stream.episode
        # A single step needs a higher jump than a lasting spike: one batch may be high by chance.
        if len(window) >= t.history:
            center, sigma = window.median, window.sigma
            excess = loss - center
            reach = max(window.high - center, 0.0)
            least = t.share * max(abs(stream.progress.start), stream.progress.start - stream.progress.best)
            high = excess > t.sigmas * sigma and excess > least and self._log_high(window, loss)
            bad = high and excess > t.lasting * reach
            lone = bad and excess > t.lone * reach and loss > stream.ceiling and not stream.batch <= t.small_batch
            bad = bad or (episode.active and high)
            calm, how = excess < 0.5 * max(t.sigmas * sigma, least), "window"
            bar = center + max(t.sigmas * sigma, least, t.lasting * reach)
        else:
            center, sigma = stream.progress.level, stream.progress.noise
            # One or two losses may be near zero by chance: they need ten times the factor.
            bar = stream.largest * t.sudden * (1.0 if stream.progress.count >= START else 10.0)
            lone = bad = 0 < bar < loss
            calm, how = not bad, "first steps"
        if bad and (not episode.active or loss > stream.details["loss"]):
            z = (loss - center) / sigma if sigma > 0 else None
            stream.details = {"how": how, "loss": loss, "level": center, "noise": sigma, "sigmas": z}
            stream.details |= {"at_step": step.index, "threshold": bar, "stream": step.stream}
            stream.details |= {"start": stream.first[1], "start_step": stream.first[0]}

        def describe() -> tuple[float, dict[str, Any]]:
            long = episode.run >= t.steps or how == "first steps"
            return (0.9 if long else 0.5), {**stream.details, "steps": episode.run}

        events = episode.observe(step.index, bad, calm, describe, certain=lone)
        stream.held = stream.held + 1 if bad else 0
        if not bad or stream.held > t.patience:
            window.add(loss)
            stream.progress.add(loss)
            stream.largest = max(stream.largest, abs(loss))
        return events

    def _log_high(self, window: Window, loss: float) -> bool:
        """Return True if a loss is high in logarithms, too, or if there are none. (Quartiles of logarithms are the
        logarithms of the quartiles.)
        """
        if window.low <= 0:
            return True
        sigma = math.log(window.quantile(0.75) / window.quantile(0.25)) / IQR_OF_SIGMA
        return math.log(loss / window.median) > self.thresholds.sigmas * sigma
