"""The events of one sampled step in their order, and the times of its layers and phases, computed from them.

Between two events the time belongs to what is innermost: a layer's call, a phase, or a node of the backward pass. So
the times of all layers and phases without what is inside of them sum to that of the step.
"""

from __future__ import annotations

import functools
import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

DATA, FORWARD, EVALUATION, BACKWARD, OPTIMIZER, OTHER = (
    "data", "forward", "evaluation", "backward", "optimizer", "other",
)  # fmt: skip
PHASES = (DATA, FORWARD, EVALUATION, BACKWARD, OPTIMIZER, OTHER)
_MOST = 0.8
"""Share of the steps, and of their time, from which on those of one course are typical of all."""
RARE = 0.05
"""Share of the steps that may be left out because they are the slowest, where no course has most of them."""
_ENTER, _LEAVE, _BEGIN, _END, _NODE, _BROKEN = range(6)


class LayerCall(NamedTuple):
    """One call of a layer in a sampled step."""

    layer: int
    """Number of the layer."""
    parent: int
    """Number of the call around it, -1 if there is none."""
    graded: bool
    """True if gradients were on."""


@dataclass
class LayerTimes:
    """Seconds of one layer in one step, over all its calls."""

    calls: int = 0
    forward: float = 0.0
    own_forward: float = 0.0
    backward: float = 0.0
    own_backward: float = 0.0
    differentiated: bool = False
    """True if a node of the backward pass belongs to it, or to a layer inside of it."""


@dataclass
class StepTimes:
    """Seconds of a sampled step by phase, and those of its layers by number."""

    total: float
    """Seconds of the step: the sum of its phases."""
    phases: dict[str, float]
    layers: dict[int, LayerTimes]


@dataclass
class StepEvents:
    """Collects the events of a step. Times are marks of a clock, read when the step is over."""

    marks: list[Any] = field(default_factory=list)
    """One mark for each event: a number, or an event of a device."""
    shapes: Any = ()
    """Inputs and outputs of the first layer, given when the step is over."""
    calls: list[LayerCall] = field(default_factory=list)
    waits: int = 0
    """Times that the data loader was waited for."""
    _events: list[tuple[int, Any]] = field(default_factory=list)
    _inside: list[int] = field(default_factory=list)
    _owners: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of autograd nodes, rising, and the call that nodes from there on belong to. A pair is added as one: a
    signal handler of the program may raise between any two lines."""

    def enter(self, layer: int, node: int, mark: Any, *, graded: bool) -> int:
        """Add the begin of a layer's call, and return the call's number. ``node`` is the number that the next node of
        autograd gets.
        """
        number = len(self.calls)
        self.calls.append(LayerCall(layer, self._inside[-1] if self._inside else -1, graded))
        self._inside.append(number)
        self._add(_ENTER, number, mark)
        self._owns(node, number)
        return number

    def leave(self, layer: int, node: int, mark: Any) -> int:
        """Add the end of the innermost call of a layer, and return the call's number, -1 if there is none. Calls inside
        of it that raised end with it.
        """
        inside, calls = self._inside, self.calls
        at = next((at for at in range(len(inside) - 1, -1, -1) if calls[inside[at]].layer == layer), None)
        if at is None:
            return -1
        number = inside[at]
        del inside[at:]
        self._add(_LEAVE, number, mark)
        self._owns(node, inside[-1] if inside else -1)
        return number

    def broken(self, node: int, mark: Any) -> None:
        """Add the end of all calls that are open: the outermost has raised."""
        if self._inside:
            self._inside.clear()
            self._add(_BROKEN, None, mark)
            self._owns(node, -1)

    def begin(self, phase: str, mark: Any) -> None:
        """Add the begin of a phase."""
        self.waits += phase == DATA
        self._add(_BEGIN, phase, mark)

    def end(self, phase: str, mark: Any) -> None:
        """Add the end of a phase."""
        self._add(_END, phase, mark)

    def node(self, call: int, mark: Any) -> None:
        """Add the moment from which on the backward pass is in nodes of a call, -1 for nodes of no layer."""
        self._add(_NODE, call, mark)

    def owner(self, node: int) -> int:
        """Return the call in which a node of autograd was made, by its number; -1 for none."""
        at = bisect_right(self._owners, node, key=itemgetter(0)) - 1
        return self._owners[at][1] if at >= 0 else -1

    def _owns(self, node: int, call: int) -> None:
        if self._owners and node < self._owners[-1][0]:  # another thread's numbers
            return
        self._owners.append((node, call))

    def _add(self, kind: int, what: Any, mark: Any) -> None:
        self._events.append((kind, what))
        self.marks.append(mark)

    @property
    def torn(self) -> bool:
        """True if an exception of the program came between an event and its mark."""
        return len(self._events) != len(self.marks)

    @functools.cached_property
    def course(self) -> tuple[Any, ...]:
        """The shapes, the events in order and the layers that were called, once the step is over: equal for steps that
        did the same.
        """
        return (self.shapes, *self._events, *self.calls)

    def alike(self, other: StepEvents) -> bool:
        """Return True if another step did the same."""
        return self.shapes == other.shapes and self._events == other._events and self.calls == other.calls

    def release(self) -> None:
        """Forget what is not needed any more once the marks were read."""
        self.marks.clear()
        self._owners.clear()

    def places(self) -> list[tuple[str, int, int]]:
        """Return for each span its phase, the call whose forward pass it is in, and the call whose nodes are run in it;
        -1 for none. The first span is before the first event, the last behind the last.
        """
        frames: list[list[Any]] = []  # [kind, number or phase, call whose nodes run]
        found = [(OTHER, -1, -1)]
        for kind, what in self._events:
            _apply(frames, kind, what)
            top = frames[-1] if frames else None
            if top is None:
                found.append((OTHER, -1, -1))
            elif top[0] == _ENTER:
                found.append((FORWARD if self.calls[top[1]].graded else EVALUATION, top[1], -1))
            else:
                found.append((top[1], -1, top[2]))
        return found

    def times(self, spans: Sequence[float]) -> StepTimes:
        """Return the times of the step; ``spans`` are the seconds of ``places()``."""
        forward, backward = [0.0] * len(self.calls), [0.0] * len(self.calls)
        reached = [False] * len(self.calls)
        phases = dict.fromkeys(PHASES, 0.0)
        for (phase, called, differentiated), span in zip(self.places(), spans, strict=True):
            phases[phase] += span
            if called >= 0:
                forward[called] += span
            if differentiated >= 0:
                backward[differentiated] += span
                reached[differentiated] = True
        return StepTimes(sum(spans), phases, self._layers(forward, backward, reached))

    def _layers(self, forward: list[float], backward: list[float], reached: list[bool]) -> dict[int, LayerTimes]:
        """Return the times of each layer: sums over its calls, with those of the calls inside."""
        whole = list(forward), list(backward), list(reached)
        layers: dict[int, LayerTimes] = {}
        for number in range(len(self.calls) - 1, -1, -1):  # calls inside come after those around them
            layer, parent, graded = self.calls[number]
            if parent >= 0:
                whole[0][parent] += whole[0][number]
                whole[1][parent] += whole[1][number]
                whole[2][parent] |= whole[2][number]
            if not graded:
                continue
            times = layers.setdefault(layer, LayerTimes())
            times.calls += 1
            times.own_forward += forward[number]
            times.own_backward += backward[number]
            times.differentiated |= whole[2][number]
            if not self._within_itself(number):
                times.forward += whole[0][number]
                times.backward += whole[1][number]
        return layers

    def _within_itself(self, number: int) -> bool:
        """Return True if a layer is called inside of a call of itself: the outer call has its time."""
        layer, above = self.calls[number].layer, self.calls[number].parent
        while above >= 0:
            if self.calls[above].layer == layer:
                return True
            above = self.calls[above].parent
        return False

    def order(self) -> list[int]:
        """Return the layers in the order of their first call."""
        return list(dict.fromkeys(call.layer for call in self.calls))


Sampled = tuple[StepEvents, "Sequence[float]"]
"""The events of a step, and the seconds between them."""


def _apply(frames: list[list[Any]], kind: int, what: Any) -> None:
    """Change the stack of what is running by one event."""
    if kind in (_ENTER, _BEGIN):
        frames.append([kind, what, -1])
    elif kind in (_LEAVE, _END):
        begun = _ENTER if kind == _LEAVE else _BEGIN
        at = next((at for at in range(len(frames) - 1, -1, -1) if frames[at][:2] == [begun, what]), None)
        if at is not None:
            del frames[at:]
    elif kind == _BROKEN:
        while frames and frames[-1][0] == _ENTER:
            frames.pop()
    else:
        for frame in reversed(frames):
            if frame[:2] == [_BEGIN, BACKWARD]:
                frame[2] = what
                break


def ordinary(steps: Sequence[Sampled]) -> list[Sampled]:
    """Return those of the sampled steps that a typical one is made of: those of the most frequent course if most steps
    have it and they take most of the time; else all but the slowest few whose course is rare: an evaluation.
    """
    met, few = Counter(events.course for events, _ in steps), int(RARE * len(steps))
    slowest = sorted(range(len(steps)), key=lambda at: sum(steps[at][1]))[len(steps) - few :]
    kept = [one for at, one in enumerate(steps) if at not in slowest or met[one[0].course] > few]
    course, times = Counter(events.course for events, _ in kept).most_common(1)[0]
    whole = sum(sum(spans) for _, spans in kept)
    took = sum(sum(spans) for events, spans in kept if events.course == course)
    if times >= _MOST * len(kept) and took >= _MOST * whole:
        return [one for one in steps if one[0].course == course]
    return kept


def alike(steps: Sequence[Sampled]) -> float:
    """Return the share of steps that have the most frequent course."""
    return Counter(events.course for events, _ in steps).most_common(1)[0][1] / len(steps)


def typical(steps: Sequence[Sampled]) -> StepTimes:
    """Return the times of a typical step of ``ordinary`` ones: of each course, weighted by its number of steps.

    Of one course a phase takes the mean of the middle half of the steps. Within it, spans have the shares of their
    medians: a moment in which another process had the processor is not the layer's in which it fell. Parts sum to the
    whole.
    """
    courses: dict[Any, list[Sampled]] = defaultdict(list)
    for one in steps:
        courses[one[0].course].append(one)
    every = [_of_course(same) for same in courses.values()]
    weights = [float(len(same)) for same in courses.values()]
    if len(every) == 1:
        return every[0]
    layers = dict.fromkeys(layer for step in every for layer in step.layers)
    return StepTimes(
        statistics.fmean([step.total for step in every], weights),
        {phase: statistics.fmean([step.phases[phase] for step in every], weights) for phase in PHASES},
        {layer: _mean([step.layers.get(layer, LayerTimes()) for step in every], weights) for layer in layers},
    )


def _of_course(steps: Sequence[Sampled]) -> StepTimes:
    events = steps[-1][0]
    return events.times(_middle(np.array([spans for _, spans in steps]), events.places()))


def _middle(spans: npt.NDArray[np.float64], places: list[tuple[str, int, int]]) -> list[float]:
    """Return the spans of a typical step, from those of several, shape (steps, spans)."""
    found = np.median(spans, axis=0)
    count = len(spans)
    least = max(count // 4, int(count > 2))
    kept = spans[np.argsort(spans.sum(axis=1))[least : count - least]]
    phases = np.array([phase for phase, _, _ in places])
    for phase in PHASES:
        of = phases == phase
        middle = float(found[of].sum())
        if middle > 0:
            found[of] *= float(kept[:, of].sum(axis=1).mean()) / middle
    return [float(one) for one in found]


def _mean(times: list[LayerTimes], weights: list[float]) -> LayerTimes:
    def of(name: str) -> float:
        return statistics.fmean([getattr(one, name) for one in times], weights)

    # A layer that is called in one of five steps is called.
    calls, reached = max(round(of("calls")), 1), any(one.differentiated for one in times)
    return LayerTimes(calls, of("forward"), of("own_forward"), of("backward"), of("own_backward"), reached)
