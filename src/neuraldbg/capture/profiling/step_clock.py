"""The clocks of sampled steps: the processor's, without the time that we take, or events on a device's stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.guest.tensor_kinds import unheard
from neuraldbg.clocks import perf_counter

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from neuraldbg.capture.guest.guard import Tally


class ProcessorClock:
    """Marks are seconds of the program: time that this tool takes on its thread is left out. ``name`` is "host" for a
    model on devices that only get their work from the processor.
    """

    def __init__(self, tally: Tally, name: str = "cpu") -> None:
        self._tally, self.name = tally, name

    def stopped(self) -> bool:
        """Return False: it can always be read."""
        return False

    def mark(self, now: float) -> float:
        """Return a mark for the moment ``now`` of ``perf_counter``, at which our own code began."""
        return now - self._tally.spent(now)

    def ready(self, marks: Sequence[float]) -> bool:
        """Return True if the marks can be read."""
        return True

    def seconds(self, marks: Sequence[float]) -> list[float]:
        """Return the marks in seconds."""
        return list(marks)


class DeviceClock:
    """Marks are CUDA events on the current stream. Nobody waits for one: they are read once the device has passed."""

    name = "cuda"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def stopped(self) -> bool:
        """Return True while a CUDA graph is captured: an event that is recorded now becomes a part of the graph and can
        never be read, and to query any event would break the capture.
        """
        return bool(torch.cuda.is_current_stream_capturing())

    def mark(self, now: float) -> Any:
        """Return an event that the device passes after all that was launched so far."""
        del now
        with unheard():
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            return event

    def ready(self, marks: Sequence[Any]) -> bool:
        """Return True if the device has passed the last mark. It does not wait."""
        return not self.stopped() and bool(marks[-1].query())

    def seconds(self, marks: Sequence[Any]) -> list[float]:
        """Return the marks in seconds since the first."""
        return [marks[0].elapsed_time(mark) / 1000 for mark in marks]


def clock_of(devices: Collection[torch.device], tally: Tally) -> ProcessorClock | DeviceClock:
    """Return the clock for a model on these devices. Only one CUDA device tells when its work is done: of several, and
    of other kinds, the processor's clock sees when work is launched.
    """
    kinds = {device.type for device in devices}
    if kinds == {"cuda"} and len(devices) == 1:
        return DeviceClock(next(iter(devices)))
    return ProcessorClock(tally, "cpu" if kinds <= {"cpu"} else "host")


def own_cost(tally: Tally, began: float, part: str = "profile") -> None:
    """Count the seconds since ``began`` as ours, unless code of ours that counts them runs around."""
    if not tally.inside:
        took = perf_counter() - began
        tally.seconds += took
        tally.parts[part] = tally.parts.get(part, 0.0) + took
