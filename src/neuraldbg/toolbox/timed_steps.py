"""The time of steps that a program measures itself: parts and layers of each step in, those of a typical step out.

A part is a timer with a name that says what it is (``PARTS``). A timer that is inside of another belongs to the part of
the innermost one with such a name. The time of a step is that of its timers called "step", else the time from the first
that was measured in it to the first that was measured in the next one. Seconds that were given and not measured here
may be longer than that: then the time of a step is their sum.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean, median
from typing import TYPE_CHECKING

from neuraldbg.nouns.facts.timing import HAND, LayerTiming, TimingFact, layer_around

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DATA, FORWARD, BACKWARD, OPTIMIZER, EVALUATION, STEP = (
    "data", "forward", "backward", "optimizer", "evaluation", "step",
)  # fmt: skip
PARTS = {
    **dict.fromkeys(("data", "data_loading", "data_loader", "dataloader", "load_data", "load_batch"), DATA),
    **dict.fromkeys(("forward", "forward_pass", "fwd"), FORWARD),
    **dict.fromkeys(("backward", "backward_pass", "bwd"), BACKWARD),
    **dict.fromkeys(("optimizer", "optimiser", "optimizer_step", "optimiser_step", "optim_step"), OPTIMIZER),
    **dict.fromkeys(("evaluation", "evaluate", "eval", "validation", "validate"), EVALUATION),
    **dict.fromkeys(("step", "train_step", "training_step"), STEP),
}
"""Names of timers that are a part of the step, or the step itself, by the part. Case, blanks and hyphens make no
difference."""
KEPT = 64
"""Steps of which a typical one is made at most, the newest: as in ``capture/profiling/timing.py``."""
_ENTRIES = 50_000
"""Times of layers in all kept steps at most, but for the newest few: some 10 MB."""
_FEWEST = 3
"""Steps that are kept in any case."""
_THREADS = 16
"""Threads of one step whose parts are told apart at most."""


@lru_cache(1_024)
def part_of(name: str) -> str | None:
    """Return the part of the step that a timer with a name is; None if the name says none."""
    return PARTS.get(re.sub(r"[\s-]+", "_", name.strip().lower()))


@dataclass(slots=True)
class LayerTotal:
    """Seconds of one layer in one step, over all its calls."""

    calls: int = 0
    forward: float = 0.0
    backward: float | None = None


@dataclass(slots=True)
class ThreadTimes:
    """Seconds of the timers of one thread in one step."""

    parts: dict[str, float] = field(default_factory=dict)
    batches: int = 0
    """Times that data was waited for."""
    outermost: float = 0.0
    """Seconds in timers that are inside of no other."""


@dataclass(slots=True)
class TimedStep:
    """All that was measured in one step."""

    number: int
    began: float
    """The clock when something of this step was first measured."""
    wall: float | None = None
    """Seconds until the same in the next step, without ``left_out``; None if there is none."""
    left_out: float = 0.0
    """Seconds that the session took to record."""
    threads: dict[int, ThreadTimes] = field(default_factory=dict)
    layers: dict[str, LayerTotal] = field(default_factory=dict)

    def of_thread(self, thread: int) -> ThreadTimes:
        """Return the times of a thread; of too many threads those of the last are not kept."""
        found = self.threads.get(thread)
        if found is None:
            found = ThreadTimes()
            if len(self.threads) < _THREADS:
                self.threads[thread] = found
        return found


@dataclass(slots=True)
class _Split:
    """One step by its parts: they sum to ``total``."""

    total: float
    parts: dict[str, float]
    other: float | None
    batches: int
    layers: Mapping[str, LayerTotal]

    @property
    def course(self) -> frozenset[str]:
        return frozenset(f"{kind}{name}" for kind, names in (("p", self.parts), ("l", self.layers)) for name in names)


class TimedSteps:
    """The newest steps of a program, with what was measured in them. Its user holds a lock."""

    def __init__(self, home: int) -> None:
        self._home = home
        """The thread whose timers are parts of the step; the first other one in steps without timers of it."""
        self.open: TimedStep | None = None
        self._kept: deque[TimedStep] = deque(maxlen=KEPT)
        self.count = 0
        """Steps that are over."""
        self._first = 0

    def begin(self, number: int, now: float) -> TimedStep:
        """Begin a step, which ends the one before."""
        before, self.open = self.open, TimedStep(number, now)
        if before is None:
            self._first = number
            return self.open
        passed = number - before.number
        before.wall = (
            max(now - before.began - before.left_out, 0.0) / passed if passed > 0 else None
        )  # steps in between were not measured
        self._kept.append(before)
        self.count += 1
        held = sum(len(step.layers) for step in self._kept)
        while held > _ENTRIES and len(self._kept) > _FEWEST:
            held -= len(self._kept.popleft().layers)
        return self.open

    def timing(self, *, ended: bool) -> TimingFact | None:
        """Return the times of a typical step, without timers; None if nothing was measured. ``ended`` is True if the
        step that is open here is over.
        """
        steps, count = list(self._kept), self.count
        if self.open is not None and not steps:  # better a part of one step than nothing
            steps, count = [self.open], 1
        if self.open is not None and ended and self.open is not steps[-1] and not self._walled(steps):
            steps, count = [*steps, self.open], count + 1
        if not steps:
            return None
        return self._typical([self._split(step) for step in steps], steps, count)

    def _walled(self, steps: Sequence[TimedStep]) -> bool:
        """Return True if a step needs a next one to be known: no timer says how long it takes."""
        return not all(STEP in times.parts for step in steps for times in self._own(step))

    def _own(self, step: TimedStep) -> list[ThreadTimes]:
        """Return the times of the thread whose timers are parts of the step; [] if none has any."""
        found = step.threads.get(self._home) or next(iter(step.threads.values()), None)
        return [] if found is None else [found]

    def _split(self, step: TimedStep) -> _Split:
        own = next(iter(self._own(step)), ThreadTimes())
        parts = {name: took for name, took in own.parts.items() if name != STEP}
        stepped = sum(own.parts.values()) if STEP in own.parts else None
        outer = [one for path, one in step.layers.items() if layer_around(path, step.layers) is None]
        if outer:  # of layers and a timer around them the longer: they may have been measured elsewhere
            parts[FORWARD] = max(parts.get(FORWARD, 0.0), sum(one.forward for one in outer))
        if backwards := [one.backward for one in outer if one.backward is not None]:
            parts[BACKWARD] = max(parts.get(BACKWARD, 0.0), sum(backwards))
        known = sum(parts.values())
        whole = stepped if stepped is not None else step.wall
        total = max(own.outermost if whole is None else whole, known)
        other = total - known if whole is not None or total > known else None
        return _Split(total, parts, other, own.batches, step.layers)

    def _typical(self, split: Sequence[_Split], steps: Sequence[TimedStep], count: int) -> TimingFact:
        """Return the mean over steps: of those in which the same was measured, the middle half by time, as
        ``capture/profiling/step_events.py`` has it; a first step that compiles says nothing of others.
        """
        courses: defaultdict[frozenset[str], list[_Split]] = defaultdict(list)
        for one in split:
            courses[one.course].append(one)
        weighed: list[tuple[_Split, float]] = []
        for same in courses.values():
            least = max(len(same) // 4, int(len(same) > 2))
            middle = sorted(same, key=lambda one: one.total)[least : len(same) - least]
            weighed += [(one, len(same) / len(middle)) for one in middle]
        weights = [weight for _, weight in weighed]

        def mean(values: Sequence[float | None]) -> float | None:
            if all(value is None for value in values):
                return None
            return fmean([value or 0.0 for value in values], weights)

        parts = {name: mean([one.parts.get(name) for one, _ in weighed]) for name in set(PARTS.values())}
        names = dict.fromkeys(name for one in split for name in one.layers)
        layers = {}
        for name in names:
            every = [one.layers.get(name) or LayerTotal() for one, _ in weighed]
            calls, forward = mean([one.calls for one in every]), mean([one.forward for one in every])
            layers[name] = (calls or 0.0, forward or 0.0, mean([one.backward for one in every]))
        data = parts[DATA] is not None
        return TimingFact(
            steps=count,
            first=self._first,
            last=steps[-1].number,
            clock=HAND,
            step_s=mean([one.total for one, _ in weighed]) or 0.0,
            data_s=parts[DATA],
            forward_s=parts[FORWARD],
            backward_s=parts[BACKWARD],
            optimizer_s=parts[OPTIMIZER],
            evaluation_s=parts[EVALUATION],
            other_s=mean([one.other for one, _ in weighed]),
            batches=float(median(one.batches for one in split)) if data else None,
            layers=_timed_layers(layers),
            backward_split=parts[BACKWARD] is None or not layers or any(one[2] is not None for one in layers.values()),
            alike=Counter(one.course for one in split).most_common(1)[0][1] / len(split),
        )


def _timed_layers(layers: Mapping[str, tuple[float, float, float | None]]) -> tuple[LayerTiming, ...]:
    """Return the times of layers by (calls, forward, backward): their own are without those of the layers directly
    inside of them.
    """
    inside: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for path, (_, forward, backward) in layers.items():
        around = layer_around(path, layers)
        if around is not None:
            inside[around][0] += forward
            inside[around][1] += backward or 0.0
    return tuple(
        LayerTiming(
            layer=path,
            calls=max(round(calls), 1),
            forward_s=forward,
            own_forward_s=max(forward - inside[path][0], 0.0),
            backward_s=backward,
            own_backward_s=None if backward is None else max(backward - inside[path][1], 0.0),
        )
        for path, (calls, forward, backward) in layers.items()
    )
