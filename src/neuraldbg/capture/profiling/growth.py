"""The growth of memory from step to step: resident and device memory as a slope, and the objects that live on.

At a few full steps what the program's variables lead to is searched (``held_objects.py``): containers are counted by
their length, and tensors by the age of the nodes of their graphs (``kept_graphs.py``). What has items, or nodes, of
each interval between the last counts grows; the source says which line adds to it (``growth_lines.py``). By default
nothing is counted until resident or device memory has grown for long. A walk through all objects of the process, as
the garbage collector makes it, would take ten times as long, and could name no holder.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.autograd.saved_tensors import next_number
from neuraldbg.capture.guest.source_trace import Source
from neuraldbg.capture.guest.tensor_kinds import node_of
from neuraldbg.capture.guest.weak_references import named
from neuraldbg.capture.profiling import kept_graphs
from neuraldbg.capture.profiling.growth_lines import GrowthLines
from neuraldbg.capture.profiling.held_objects import HOOK, Search
from neuraldbg.capture.profiling.part import Part
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.clocks import perf_counter
from neuraldbg.memory_slope import Readings
from neuraldbg.nouns import Fact, FactKey
from neuraldbg.nouns.facts.growth import Survivors
from neuraldbg.nouns.facts.kinds import SourceLine

if TYPE_CHECKING:
    from neuraldbg.capture.guest.user_code import Place
    from neuraldbg.capture.profiling.held_objects import Container, Holding, Kept, Spot
    from neuraldbg.capture.profiling.part import Profiling

_INTERVALS = 4
"""Intervals between counts of all of which something must be alive to be growing."""
_KEPT = 8
"""Counts that are remembered."""
_STEPS = 40
"""Steps over which a container without graphs must have grown: a warm-up, a window or a first epoch is shorter."""
_SURE = 24
"""Steps of the intervals from which one count is enough for tensors with graphs."""
_UNEVEN = 3.0
"""Largest ratio of the rates of two intervals of something that grows by the step."""
_AT = (2, 4, 7, 11, 16, 24, 36, 54)
"""Steps of the first counts, which are made whatever they cost where the profile was asked for."""
_SHARE = 0.01
"""Share of the time since the last count that a count may take, after the first, where the profile was asked for."""
_COUNT_S = 0.05
"""Seconds of a count, before any was made."""
_LOOKS = 64
"""Full steps after which it is computed again if memory has grown for long."""
_ROOTS = 24
"""Graphs that one count walks, and tensors whose graphs are weighed."""
_WEIGHED = 500
"""Nodes of each graph that are weighed at most."""
_TOLD = 16
"""Survivors of a fact at most."""
_LEAST = 256
"""Bytes a step from which on tensors without graphs, and arrays, are told: 256 MiB in a million steps. The losses and
metrics that a program keeps for its curves are smaller."""
_OVER = 2
"""Counts in a row in which the function that holds something with graphs does not run after which it is over."""


@dataclass
class _Count:
    """One count, as numbers."""

    step: int
    number: int
    """Number of the next autograd node at that time."""
    lengths: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """{(code, name, identity of a container): length}."""
    sizes: dict[tuple[str, str], int] = field(default_factory=dict)
    """{(code, name) of a tensor without a graph, or of an array: bytes}."""
    newest: dict[str, int] = field(default_factory=dict)
    """{name of what holds tensors with graphs: number of the newest node that one of them has}."""


class Growth(Part):
    """Counts what lives on."""

    def __init__(self, profiling: Profiling) -> None:
        super().__init__(profiling)
        self._reader = _Steps(self)
        self._counts: deque[_Count] = deque(maxlen=_KEPT)
        self._first = self._last = -1
        self._next, self._made, self._took, self._ended = _AT[0], 0, 0.0, 0.0
        self._over = self._grows = False
        self._complete = True
        self._closed = 0
        self._readings = {"resident": Readings(), "device_memory": Readings()}
        self._sources: dict[str, Source] = {}
        self._seen: dict[str, int] = {}
        """{key of a survivor: number of counts that have found it}."""
        self._found: dict[str, Survivors] = {}
        self._places: dict[str, Spot] = {}
        """{key of a survivor: its place}."""
        self._ended_for: dict[str, int] = {}
        """{key of a survivor: counts in a row in which the function that holds it did not run}."""
        self._shrunk: set[tuple[str, str]] = set()
        """(code, name) of containers that became shorter."""

    def start(self) -> None:
        """Begin to read the ends of full steps."""
        self.scene.join(self._reader)

    def stop(self) -> None:
        """End."""
        self._over = True
        self._counts.clear()

    def facts(self) -> tuple[Fact, ...]:
        """Return the fact, once there is something to tell."""
        grown = {name: readings.slope() for name, readings in self._readings.items()}
        if self._made <= _INTERVALS and all(value is None for value in grown.values()):
            return ()
        every = sorted(self._found.values(), key=lambda one: (-one.bytes_per_step, -one.operations_per_step))
        spans = [span for readings in self._readings.values() if (span := readings.span()) is not None]
        value: dict[str, Any] = {
            "first": max(self._first, 0), "last": max(self._last, 0), "counts": self._made,
            "resident_per_step": grown["resident"], "device_per_step": grown["device_memory"],
            "slope_first": min((first for first, _ in spans), default=None),
            "slope_last": max((last for _, last in spans), default=None), "complete": self._complete,
            "survivors": [_plain(one) for one in every[:_TOLD]],
        }  # fmt: skip
        return (Fact(max(value["last"], value["slope_last"] or 0), FactKey.GROWTH.value, value),)

    def step_closed(self) -> None:
        """Read the memory in use at the end of a full step, and count if it is time."""
        if self._over:
            return
        scene = self.scene
        step = scene.step
        for name, readings in self._readings.items():
            if name in scene.scalars:
                readings.add(step, scene.scalars[name])
        self._closed += 1
        if not self.asked and self._closed % _LOOKS == 0:
            self._grows |= any(readings.grows() for readings in self._readings.values())
        if step < self._next or not (self.asked or self._grows):
            return
        now = perf_counter()
        if not self._may(now):
            return
        self._count(step)
        self._ended = perf_counter()
        self._took = self._ended - now
        if self.asked:
            self.excuse(self._took)
        self._made += 1
        self._next = step + self._gap(step)
        self._first = step if self._first < 0 else self._first
        self._last = step

    def _may(self, now: float) -> bool:
        """Return True if a count may take its time now: the first where the profile was asked for, and few later."""
        if not self.asked:
            return self.affords(self._took or _COUNT_S)
        return self._made < len(_AT) or now - self._ended > self._took / _SHARE

    def _gap(self, step: int) -> int:
        """Return the steps from a count to the next."""
        if not self.asked or self._made >= len(_AT):
            return max(8, step // 4)
        return _AT[self._made] - _AT[self._made - 1]

    # -- one count ----------------------------------------------------------------------------------------------

    def _count(self, step: int) -> None:
        count = _Count(step, next_number())
        held = Search().run(sys._getframe(1), [m.root for m in self.scene.models.found if not m.gone])  # noqa: SLF001
        self._complete &= held.complete
        containers = {(c.spot.code, c.spot.name, c.key): c for c in held.containers}
        count.lengths = {key: c.length for key, c in containers.items()}
        count.sizes = {(one.spot.code, one.spot.name): one.item.bytes for one in held.singles}
        for kept in held.graphs:
            number = kept_graphs.number_of(node_of(kept.tensor)) or 0
            count.newest[kept.spot.name] = max(number, count.newest.get(kept.spot.name, 0))
        if self._counts:
            self._note_shrunk(self._counts[-1], count, containers)
        self._counts.append(count)
        if len(self._counts) <= _INTERVALS:
            return
        there: dict[str, Survivors] = {}
        self._containers(containers, held, there)
        self._singles(held, there)
        self._chains(held, there)
        # Over few steps two counts in a row must find it. What has a graph stays; all else must be in the newest count.
        sure = 1 if step - self._counts[-_INTERVALS - 1].step >= _SURE else 2
        self._seen = {key: self._seen.get(key, 0) + 1 for key in there}
        self._found = {
            key: one for key, one in self._found.items()
            if key in there or (one.with_graph and not self._is_over(key, held))
        }  # fmt: skip
        self._found |= {key: one for key, one in there.items() if self._seen[key] >= sure or not one.with_graph}

    def _note_shrunk(self, before: _Count, now: _Count, containers: dict[tuple[str, str, int], Container]) -> None:
        """Remember the containers that became shorter. Another one may have taken its place at the same address: a
        variable of a function that is called again, or one that the program begins again.
        """
        for key, length in now.lengths.items():
            spot = containers[key].spot
            shorter = length < before.lengths.get(key, 0) and (spot.attribute or not spot.line)
            if shorter and key[:2] not in self._shrunk and not self._lines_of(spot).begins_again():
                self._shrunk.add(key[:2])

    def _is_over(self, key: str, held: Holding) -> bool:
        """Return True if something with graphs that was told does not grow any more. A list that is begun again in each
        epoch goes on growing, although no count finds it twice.
        """
        spot, before, now = self._places[key], self._counts[-2], self._counts[-1]
        if (spot.code, spot.name) in self._shrunk or now.newest.get(spot.name, -1) == before.newest.get(spot.name):
            return True
        runs = not spot.line or (spot.files[0], spot.line) in held.functions or not held.complete
        self._ended_for[key] = 0 if runs else self._ended_for.get(key, 0) + 1
        return self._ended_for[key] >= _OVER

    def _steps_of(self) -> tuple[list[int], list[int]]:
        """Return the node numbers that bound the last intervals, and the steps of each."""
        last = list(self._counts)[-_INTERVALS - 1 :]
        return [c.number for c in last], [b.step - a.step for a, b in itertools.pairwise(last)]

    def _chains(self, held: Holding, there: dict[str, Survivors]) -> None:
        """Tell of tensors whose own graph reaches back over all intervals: a running loss, a state carried on."""
        bounds, steps = self._steps_of()
        found: list[Kept] = []
        for kept in held.graphs[:_ROOTS]:
            node = node_of(kept.tensor)
            made = kept_graphs.number_of(node)
            if made is None or made < bounds[-3]:
                continue
            reached = kept_graphs.reach(node, bounds[:-1])
            if (reached.cut and reached.oldest < bounds[-2]) or _even(reached.nodes[1:-1], steps[:-1]):
                found.append(kept)
        for kept in found:
            x, lines = kept.tensor, self._lines_of(kept.spot)
            told = lines.find(graph=True, item=False, scalar=kept.tensor.dim() == 0)
            # Whatever is computed from a state that is carried on reaches back as well, and has no such line.
            if told.kept is None and len(found) > 1:
                continue
            reached = kept_graphs.reach(node_of(x), bounds[:-1], self._known())
            between = sum(steps[:-1])
            shape, dtype = tuple(x.shape), str(x.dtype).removeprefix("torch.")
            key = _key(told.holder or kept.spot.code, kept.spot)
            self._places[key] = kept.spot
            there[key] = Survivors(
                type="Tensor with its graph", shape=shape, dtype=dtype, per_step=1.0, alive=1, with_graph=True,
                bytes_per_step=reached.bytes / max(1, sum(steps)), made=_line(told.made), kept=_line(told.kept),
                operations_per_step=sum(reached.nodes[1:-1]) / between, holder=told.holder or kept.spot.code,
                mended=told.mended,
            )  # fmt: skip

    def _containers(
        self, containers: dict[tuple[str, str, int], Container], held: Holding, there: dict[str, Survivors]
    ) -> None:
        """Tell of containers whose length has grown in all intervals and that nothing empties."""
        whole = list(self._counts)
        last = whole[-_INTERVALS - 1 :]
        long = whole[-1].step - whole[0].step >= _STEPS
        steps = [b.step - a.step for a, b in itertools.pairwise(last)]
        for key, container in containers.items():
            item, spot = container.item, container.spot
            if item is None:
                continue
            # A hook or a graph is a fault after a few steps; without a graph it may be the first epoch of a cache.
            soon = item.graph or item.type == HOOK
            if not (soon or long) or any(key not in one.lengths for one in (last if soon else whole)):
                continue
            added = [b.lengths[key] - a.lengths[key] for a, b in itertools.pairwise(last)]
            if not _even(added, steps):
                continue
            lines = self._lines_of(spot)
            if item.type != HOOK and (key[:2] in self._shrunk or lines.limited(graph=item.graph)):
                continue
            told = lines.find(graph=item.graph, item=True, scalar=not item.shape)
            if told.kept is None and not item.graph:
                continue
            rate = sum(added) / sum(steps)
            weight, operations = self._weight(spot, held) if item.graph else (item.bytes, 0.0)
            if item.dtype and not item.graph and weight * rate < _LEAST:
                continue
            name = _key(told.holder or spot.code, spot)
            self._places[name] = spot
            there[name] = Survivors(
                type=item.type, shape=item.shape, dtype=item.dtype, per_step=rate, bytes_per_step=weight * rate,
                operations_per_step=operations * rate, alive=container.length, with_graph=item.graph,
                made=_line(told.made), kept=_line(told.kept), holder=told.holder or spot.code,
                mended=told.mended if item.graph else "",
            )  # fmt: skip

    def _singles(self, held: Holding, there: dict[str, Survivors]) -> None:
        """Tell of tensors without graphs and of arrays that become larger: ``torch.cat([seen, x])``, ``np.append``."""
        whole = list(self._counts)
        last = whole[-_INTERVALS - 1 :]
        steps = [b.step - a.step for a, b in itertools.pairwise(last)]
        if whole[-1].step - whole[0].step < _STEPS:
            return
        for spot, item in held.singles:
            place = (spot.code, spot.name)
            if any(place not in one.sizes for one in whole):
                continue
            added = [b.sizes[place] - a.sizes[place] for a, b in itertools.pairwise(last)]
            rate = sum(added) / sum(steps)
            if rate < _LEAST or not _even(added, steps):
                continue
            lines = self._lines_of(spot)
            if lines.limited(graph=False) or lines.renewed():
                continue
            told = lines.find(graph=False, item=False, scalar=False)
            if told.kept is None:
                continue
            there[_key(told.holder, spot)] = Survivors(
                type=item.type, shape=item.shape, dtype=item.dtype, per_step=1.0, bytes_per_step=rate, alive=1,
                made=_line(told.made), kept=_line(told.kept), holder=told.holder, grows=True,
            )  # fmt: skip

    def _weight(self, spot: Spot, held: Holding) -> tuple[float, float]:
        """Return bytes and operations that a tensor in a container keeps alive, as the mean of a few."""
        found = [kept.tensor for kept in held.graphs if kept.inside and kept.spot.name == spot.name]
        # The newest belongs to the current step, which its graph still is needed for.
        sample = [x for x in found if kept_graphs.number_of(node_of(x)) is not None][:_ROOTS]
        if not sample:
            return 0.0, 0.0
        bounds, _ = self._steps_of()
        known, storages = self._known(), set[int]()
        own = sum(kept_graphs.bytes_of(x, storages) for x in sample)
        reached = [kept_graphs.reach(node_of(x), bounds, known, most=_WEIGHED) for x in sample]
        return (own + sum(one.bytes for one in reached)) / len(sample), sum(sum(one.nodes) for one in reached) / len(
            sample
        )

    def _lines_of(self, spot: Spot) -> GrowthLines:
        return GrowthLines(self._source, spot)

    def _source(self, file: str) -> Source:
        if file not in self._sources:
            self._sources[file] = Source(file)
        return self._sources[file]

    def _known(self) -> set[int]:
        """Return the addresses of the watched parameters, which a graph does not keep alive by itself."""
        known: set[int] = set()
        for watched in self.scene.params.all():
            kept_graphs.bytes_of(named(watched.weak), known)
        return known


class _Steps(Reader):
    """Tells the part of the end of each full step."""

    def __init__(self, part: Growth) -> None:
        super().__init__(part.scene)
        self._part = part

    @property
    def doing(self) -> str:
        """The work that an error ends."""
        return "counting what lives on"

    def step_closes(self) -> None:
        """Tell the part."""
        self._part.step_closed()


def _even(numbers: list[int], steps: list[int]) -> bool:
    """Return True if there is something of each interval, at about the same rate per step."""
    rates = [number / step for number, step in zip(numbers, steps, strict=True)]
    return min(numbers) > 0 and max(rates) <= _UNEVEN * min(rates)


def _key(holder: str, spot: Spot) -> str:
    """Return the key of a survivor, the same in all counts."""
    return f"{holder} {spot.files[0] if spot.files else ''}"


def _line(place: Place | None) -> SourceLine | None:
    return SourceLine(place.file, place.line, place.code) if place is not None else None


def _plain(one: Survivors) -> dict[str, Any]:
    told = asdict(one)
    return told | {name: list(told[name]) if told[name] is not None else None for name in ("made", "kept", "shape")}


PART = Growth
