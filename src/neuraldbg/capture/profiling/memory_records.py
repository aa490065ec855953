"""The peaks of one step, computed from what the allocator told of it.

The records of torch's legacy profiler enter: each allocation and release with its bytes, between the operators that
made them and the marks that were set at the begin and the end of layers' calls. What a backward operator allocates
belongs to the call that made its node in the forward pass. Numbers leave.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.profiling.operation_counts import ENTERS, LEAVES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.profiling.step_events import StepEvents

BEGINS, BACKWARD, AFTER_BACKWARD, OPTIMIZER = (
    "neuraldbg step begins", "neuraldbg backward begins", "neuraldbg backward ends", "neuraldbg optimizer begins",
)  # fmt: skip
"""Names of the marks beside those of layers' calls."""
OURS, OURS_ENDS = "neuraldbg works", "neuraldbg has worked"
"""Marks around our own work, whose allocations are left out."""
_BACKWARD_SCOPE = 1
FORWARD_OF, BACKWARD_OF = "forward", "backward"


@dataclass
class Peaks:
    """Bytes that were alive, beyond those at the begin of the step."""

    left: int = 0
    """Bytes that were allocated before the step, since the record began, and not released."""
    whole: int = 0
    """The most in the step."""
    at: tuple[str, int] = ("", -1)
    """The phase of that moment, and the layer's call, -1 for none."""
    forward: dict[int, int] = field(default_factory=dict)
    """The most while a call ran, or one inside of it, by its layer's number."""
    backward: dict[int, int] = field(default_factory=dict)
    """The most during the backward pass of a call's operations, or of one's inside of it, by its layer's number."""
    before_backward: int | None = None
    """Bytes at the begin of the first backward pass; None if there was none."""
    moves: int = 0
    """Allocations and releases."""


class _Reading:
    """The state while records are read in order."""

    def __init__(self, events: StepEvents, *, device: bool) -> None:
        self.found = Peaks()
        self._events, self._device = events, device
        self._now = 0
        self._sizes: Counter[int] = Counter()
        """Allocations that were not released, by their bytes."""
        self._begun = False
        self._calls: list[int] = []
        self._nodes: dict[int, list[int]] = {}
        """Open records of each thread: the node whose backward pass it is, -1 for none."""
        self._ours = -1
        """The thread in which our own code runs, -1 for none."""
        self._phase = "before the forward pass"

    def read(self, thread: int, record: Any) -> None:
        kind = record.kind()
        if kind == "memory_alloc" and self._ours != thread:
            self._moves(thread, record.cuda_memory_usage() if self._device else record.cpu_memory_usage())
        elif kind == "push":
            self._opens(thread, self._nodes.setdefault(thread, []), record)
        elif kind == "pop" and self._nodes.get(thread):
            self._nodes[thread].pop()

    def _opens(self, thread: int, nodes: list[int], record: Any) -> None:
        name, node = record.name(), nodes[-1] if nodes else -1
        if name == BEGINS:
            self._now, self.found, self._begun = 0, Peaks(left=self._now), True
        elif name in (OURS, OURS_ENDS):
            self._ours = thread if name == OURS else -1
        elif name.startswith(ENTERS):
            self._calls.append(int(name.removeprefix(ENTERS)))
            self._note_forward()
        elif name.startswith(LEAVES):
            call = int(name.removeprefix(LEAVES))
            if call in self._calls:
                del self._calls[self._calls.index(call) :]
            self._phase = "between the forward and the backward pass"
        elif name == BACKWARD:
            self._phase = "the backward pass of the loss"
            if self.found.before_backward is None:
                self.found.before_backward = self._now
        elif name == AFTER_BACKWARD:
            self._phase = "between the backward pass and the optimizer's step"
        elif name == OPTIMIZER:
            self._phase = "the optimizer's step"
        elif record.scope() == _BACKWARD_SCOPE and record.sequence_nr() >= 0:
            node = record.sequence_nr()
        nodes.append(node)

    def _stale(self, size: int) -> bool:
        """Return True for a release of what was not allocated in this record. Torch's CPU allocator remembers addresses
        of its earlier records (ProfiledCPUMemoryReporter), and tells of a release there whatever lies there now.
        """
        if size < 0 and not self._sizes[-size] and not self._device:
            return True
        self._sizes[abs(size)] += 1 if size > 0 else -1
        return False

    def _moves(self, thread: int, size: int) -> None:
        if self._stale(size):
            return
        found = self.found
        self._now += size
        if not self._begun or not size:
            return
        found.moves += 1
        nodes = self._nodes.get(thread)
        node = nodes[-1] if nodes else -1
        if node >= 0:
            call = self._events.owner(node)
            self._note(found.backward, call)
            where = (BACKWARD_OF, call) if call >= 0 else ("the backward pass of the loss", -1)
        else:
            self._note_forward()
            where = (FORWARD_OF, self._calls[-1]) if self._calls else (self._phase, -1)
        if self._now > found.whole:
            found.whole, found.at = self._now, where

    def _note_forward(self) -> None:
        for call in self._calls:
            layer = self._events.calls[call].layer
            self.found.forward[layer] = max(self.found.forward.get(layer, self._now), self._now)

    def _note(self, to: dict[int, int], call: int) -> None:
        while call >= 0:
            layer, call, _ = self._events.calls[call]
            to[layer] = max(to.get(layer, self._now), self._now)


def peaks(records: list[list[Any]], events: StepEvents, *, device: bool) -> Peaks:
    """Return the peaks of the step after the mark ``BEGINS``. ``device`` is True for memory of CUDA devices."""
    reading = _Reading(events, device=device)
    for thread, record in _ordered(records):
        reading.read(thread, record)
    return reading.found


def _ordered(records: list[list[Any]]) -> Iterable[tuple[int, Any]]:
    """Return the records of all threads in order of time: a backward pass on a device has a thread of its own."""
    filled = [(number, thread) for number, thread in enumerate(records) if thread]
    if len(filled) == 1:
        return [(filled[0][0], record) for record in filled[0][1]]
    every = [(number, record) for number, thread in filled for record in thread]
    begin = min((thread[0] for _, thread in filled), key=lambda record: record.start_us(), default=None)
    return sorted(every, key=lambda pair: begin.cpu_elapsed_us(pair[1])) if begin is not None else []
