"""The records of light steps that are over, one line each, which are processed a few at a time.

Code that runs once a step finds every cache cold, and takes several times as long as the same code in a loop. So the
end of a light step records the values that were read, and does no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from neuraldbg.capture.loop.fused_steps import overflows
from neuraldbg.capture.loop.loss_values import awaits, loss_of
from neuraldbg.capture.statistics.device.pending import sent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.capture.loop.loss_values import Kept
    from neuraldbg.capture.loop.native_steps import BatchSizes
    from neuraldbg.capture.loop.optimizer_stream import Stream
    from neuraldbg.capture.statistics.device.pending import Late
    from neuraldbg.capture.statistics.raw_rows import Raw
    from neuraldbg.capture.statistics.watched_parameter import Watched
    from neuraldbg.nouns import Layout


class Seen(NamedTuple):
    """The readings of sites in a light step whose sites are read."""

    taken: Raw
    stepped: tuple[Watched, ...]
    layout: Layout
    sizes: BatchSizes
    """The batch sizes of this step and others."""


class Glimpse(NamedTuple):
    """The record of one light step: scalars, losses, time."""

    step: int
    stream: int
    time: float
    """Time at which the step ended, in seconds since the session began."""
    lr: float | None
    losses: list[Kept]
    backwards: int
    closure: bool
    norm: float | None
    weighed: bool
    """True if all gradients were read."""
    own: float
    """Seconds that watching had taken by then."""
    late: Late | None
    """Loss, norm and overflow that are still on a device, None if none is."""
    seen: Seen | None = None
    further: dict[str, float] = {}  # noqa: RUF012 (never changed)
    """The scalars ``overflowed`` and ``outside``, where they are not 0, and ``batch_size``, where it is known."""

    def scalars(self) -> dict[str, float]:
        """Return the scalars of the step."""
        found: dict[str, float] = {"backwards": self.backwards, **self.further}
        if self.losses:
            found.update(loss_of(self.losses, closure=self.closure)[0])
        if self.lr is not None:
            found["lr"] = self.lr
        if self.norm is not None:
            found["grad_norm"] = self.norm
        return found


class Line(NamedTuple):
    """The record of one light step made by native code, as ``Glimpse``."""

    step: int
    stream: int
    time: float
    told: dict[str, float]
    backwards: int
    norm: float | None
    weighed: bool
    own: float
    seen: Seen | None = None
    late: None = None

    def scalars(self) -> dict[str, float]:
        """Return the scalars of the step."""
        return self.told


def line_of(line: list[float], own: float, step: int, stream: int, began: float, seen: Seen | None) -> Line:
    """Return what native code wrote of one light step; ``began`` is the time from which it counts, in seconds."""
    at, _, rate, norm, weighed, backwards, loss, outside, *_, apart = line
    told: dict[str, float] = {"backwards": int(backwards)}
    if outside or (seen is not None and apart):
        told["outside"] = max(outside, apart)
    if seen is not None and (size := seen.sizes.of(step, int(backwards))) is not None:
        told["batch_size"] = size
    if backwards:
        told["loss"], told["loss_nonfinite"] = loss, 0
    if rate == rate:  # noqa: PLR0124 (NaN for none)
        told["lr"] = rate
    if weighed:
        told["grad_norm"] = norm
    return Line(step, stream, at - began, told, int(backwards), norm if weighed else None, weighed > 0, own, seen)


def glimpse_of(
    step: int,
    streams: Sequence[Stream],
    now: float,
    losses: list[Kept],
    own: float,
    *,
    closure: bool,
    seen: Seen | None = None,
) -> Glimpse:
    """Return the record of a step that has just ended; the numbers are those of the first of its optimizers."""
    stream = streams[0] if streams else None
    index, lr, read = (stream.index, stream.lr, stream.glimpse) if stream is not None else (0, None, None)
    norm = read[0] if read is not None else None
    weighed, late_norm = (stream.weighed, stream.awaited_norm) if stream is not None else (False, None)
    late, (further, late_overflows) = None, overflows(streams)
    if stream is not None and stream.outside is not None:
        further["outside"] = stream.outside.change
    if seen is not None and (size := seen.sizes.of(step, len(losses))) is not None:
        further["batch_size"] = size
    if late_norm is not None or late_overflows or awaits(losses):
        awaited = late_norm, loss_of(losses, closure=closure)[1], *late_overflows
        late = sent([each for each in awaited if each is not None])
    return Glimpse(step, index, now, lr, losses, len(losses), closure, norm, weighed, own, late, seen, further)
