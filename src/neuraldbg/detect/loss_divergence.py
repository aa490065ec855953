"""The loss has risen for good: the progress made is lost, or the loss has gone far above its start.

Two ways (`how` in the details): `rise`: the median of the recent losses stands above the best level by most of all the
progress made (or, without progress, by the starting level itself) and by several times the present noise;
`above_start`: the losses themselves are tens of times all losses before, at once or within some tens of steps.
Where several optimizers have losses of their own (a GAN), a rise of one is part of the game and only the second way
counts, at a far higher bar.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from neuraldbg.config import Field, Thresholds
from neuraldbg.detect.episodes import Episode
from neuraldbg.detect.progress import Progress, Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.nouns import Event, Layout, Step

CHUNK = 25
"""Steps between two marks of the largest loss: growth is measured against one to two chunks ago."""
LULL = 7
"""Largest number of losses near the start that do not move the first step of a divergence: one more would end it."""


class LossDivergenceThresholds(Thresholds):
    """The thresholds of a diverged loss, for both ways."""

    lost: float = Field(
        0.7, gt=0, description="Share of the progress made that is lost (`rise`). Source: our own choice."
    )
    rise: float = Field(
        1.0,
        gt=0,
        description="Rise without any progress before, in units of the starting level. Source: our own choice: "
        "doubled.",
    )
    least: float = Field(0.25, ge=0, description="Least rise in units of the starting level. Source: our own choice.")
    sigmas: float = Field(4.0, gt=0, description="The rise in units of the present noise. Source: our own choice.")
    early_sigmas: float = Field(
        6.0, gt=0, description="The rise in units of the noise while all was well. Source: our own choice."
    )
    factor: float = Field(
        30.0,
        gt=1,
        description="Of all seen a while ago (`above_start`). Source: our own choice; Neural Observer halts at 3.",
    )
    adversarial: float = Field(
        1000.0, gt=1, description="The same where several optimizers have losses of their own. Source: our own choice."
    )
    steps: int = Field(3, ge=1, description="Steps in a row for `above_start`. Source: one or two steps are a spike.")
    rise_steps: int = Field(8, ge=1, description="Steps in a row for `rise`. Source: half the window of its median.")
    window: int = Field(16, ge=4, description="Losses whose median is the level. Source: our own choice.")


class Stretch:
    """The losses far above the start, in a row but for lulls shorter than what came before them."""

    def __init__(self) -> None:
        self.first: int | None = None
        """The step of the first of them, None before it."""
        self._last = self._count = 0

    def add(self, index: int, number: int) -> None:
        """Add the loss of a step, by its number among the losses of its optimizer.

        One spike, and a divergence some steps after it, are two events.
        """
        lull = number - self._last - 1
        if self.first is None or lull >= max(1, min(self._count, LULL + 1)):
            self.first, self._count = index, 0
        self._last = number
        self._count += 1


class _Stream:
    """The loss of one optimizer: its progress, recent window and episode."""

    def __init__(self, t: LossDivergenceThresholds) -> None:
        self.first: tuple[int, float] | None = None
        """The first finite loss, with its step."""
        self.progress = Progress()
        self.small = min(t.least, t.rise, t.factor, t.adversarial)
        """Rise, in units of the starting level, that is below every threshold."""
        self.recent = Window(t.window)
        self.best = math.inf
        """Lowest level so far: the median of the recent losses, or ``progress.level`` while they are few."""
        self.marks = [0.0, 0.0]
        """Largest absolute loss up to the last two multiples of CHUNK losses, the earlier first."""
        self.top = 0.0
        """Largest absolute loss."""
        self.count = 0
        """Number of losses learnt from."""
        self.high_since: int | None = None
        """First step of the losses above the threshold of `rise`. None if the loss is not above it."""
        self.far = Stretch()
        self.seen = 0
        """Number of losses so far."""
        self.risen = 0
        """Number of steps in a row whose median is above the threshold of `rise`."""
        self.episode = Episode("loss_divergence", "loss", enter_steps=t.steps, leave_steps=t.rise_steps)
        self.episode.site = "loss"


class LossDivergence:
    """The detector of losses that have risen for good."""

    name: ClassVar[str] = "loss_divergence"
    needs: ClassVar[frozenset[str]] = frozenset()
    light: ClassVar[bool] = True

    def __init__(self, thresholds: LossDivergenceThresholds | None = None) -> None:
        self.thresholds = thresholds or LossDivergenceThresholds()
        self._streams: dict[int, _Stream] = {}

    def observe(self, step: Step, layout: Layout) -> Iterable[Event]:  # noqa: ARG002
        """Judge one step."""
        loss = step.scalars.get("loss")
        stream = self._streams.get(step.stream)
        if loss is None:
            return []
        if stream is None:
            stream = self._streams[step.stream] = _Stream(self.thresholds)
        if math.isfinite(loss):
            stream.first = stream.first or (step.index, loss)
            return self._judge(step.index, stream, loss)
        # A loss that was far up and is now NaN or infinite has not come back.
        episode = stream.episode
        if not (episode.active or episode.run):
            return []
        said = self._details(stream, "above_start", stream.recent.high, math.inf)
        return episode.observe(step.index, True, False, lambda: said, certain=True)

    def ongoing(self) -> Iterable[Event]:
        """Return the events that still last."""
        return [event for stream in self._streams.values() for event in stream.episode.ongoing()]

    def _judge(self, index: int, stream: _Stream, loss: float) -> list[Event]:
        t, progress, episode = self.thresholds, stream.progress, stream.episode
        alone = len(self._streams) == 1
        # Nearly all losses are below every threshold: then the reference, and its noise, are not computed.
        still = not (episode.active or episode.run or stream.risen)
        if still and loss - min(stream.best, progress.start) <= stream.small * abs(progress.start):
            far, above = 0.0, False
        else:
            reference = max(abs(progress.start), stream.marks[0], progress.noise) if progress.count else math.inf
            far = (t.factor if alone else t.adversarial) * reference
            above = loss - min(stream.best, progress.start) > far if reference > 0 and progress.count else False
        stream.seen += 1
        # A loss far above the reference must not become the reference.
        if not above:
            self._learn(stream, loss)
        elif not episode.active:
            stream.far.add(index, stream.seen)
        stream.recent.add(loss)
        recent = stream.recent.ordered
        level = recent[len(recent) >> 1]
        if still and not above and max(loss, level) - stream.best <= stream.small * abs(progress.start):
            stream.high_since = None
            return []
        rise, bar = level - stream.best, self._bar(stream)
        risen = alone and len(stream.recent) >= t.rise_steps and rise > max(bar, t.sigmas * stream.recent.sigma)
        stream.risen = stream.risen + 1 if risen else 0
        if alone and loss - stream.best > bar:
            stream.high_since = index if stream.high_since is None else stream.high_since
        elif not risen and not episode.active:
            stream.high_since = None
        # `rise` needs more steps than `above_start`, on which the episode counts: so it enters as certain.
        lasting = stream.risen >= t.rise_steps
        bad = above or risen if episode.active else above or lasting
        calm = not bad and rise < 0.5 * bar
        how = "above_start" if above else "rise"
        since = stream.far.first if above else stream.high_since if not episode.run else None
        return episode.observe(
            index,
            bad,
            calm if episode.active else not bad,
            lambda: self._details(stream, how, level, far if above else stream.best + bar),
            certain=lasting,
            since=since,
        )

    def _bar(self, stream: _Stream) -> float:
        """Return the rise above the best level that counts as divergence."""
        t, start = self.thresholds, stream.progress.start
        made = start - stream.best
        if made > max(0.1 * abs(start), 3.0 * stream.progress.noise):
            bar = max(t.lost * made, t.least * abs(start))
        else:
            bar = t.rise * abs(start)
        return max(bar, t.early_sigmas * stream.progress.noise)

    def _learn(self, stream: _Stream, loss: float) -> None:
        stream.progress.add(loss)
        if abs(loss) > stream.top:
            stream.top = abs(loss)
        stream.count += 1
        if stream.count % CHUNK == 0:
            stream.marks = [max(stream.marks), stream.top]
        recent = stream.recent.ordered
        settled = recent[len(recent) >> 1] if len(recent) >= self.thresholds.window // 2 else stream.progress.level
        if settled < stream.best:
            stream.best = settled

    def _details(self, stream: _Stream, how: str, level: float, bar: float) -> tuple[float, dict[str, Any]]:
        start, best = stream.progress.start, stream.best
        rise = level - best
        begun, first = stream.first or (None, start)
        details: dict[str, Any] = {
            "how": how,
            "start": first,
            "start_step": begun,
            "best": best,
            "level": level,
            "rise": rise,
        }
        details |= {"noise": stream.recent.sigma, "threshold": bar if math.isfinite(bar) else None}
        details["factor_of_start"] = level / abs(first) if first else None
        if how == "above_start":
            factor = max(level / abs(start), 1.0) if start else 1.0
            return min(0.99, 0.6 + 0.1 * math.log10(factor)), details
        return min(0.95, 0.7 + 0.05 * (rise / max(stream.recent.sigma, 1e-12) / self.thresholds.sigmas - 1.0)), details
