"""Time and work of each layer and of the parts of a step, in sampled steps: the TIMING fact.

A step is the time from the end of a step of the first optimizer to the end of its next one. A few steps are sampled
within the overhead budget, once steps do not get faster any more. If the profile was asked for, steps are sampled all
along, so many that this takes ``SHARE`` of the training's time.
"""

from __future__ import annotations

import itertools
import os
import statistics
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from neuraldbg.capture.guest.own_hooks import numbers_apart
from neuraldbg.capture.guest.tensor_kinds import unheard
from neuraldbg.capture.loop.optimizers import wait_between_steps
from neuraldbg.capture.profiling.matmul_rate import MatmulRate
from neuraldbg.capture.profiling.operation_counts import Counts, counted, mean_counts
from neuraldbg.capture.profiling.part import Part
from neuraldbg.capture.profiling.sampled_step import SampledStep, devices_of
from neuraldbg.capture.profiling.step_bounds import LeadOptimizer, most_events, recorded_s
from neuraldbg.capture.profiling.step_clock import ProcessorClock, clock_of, own_cost
from neuraldbg.capture.profiling.step_events import (
    BACKWARD,
    DATA,
    EVALUATION,
    FORWARD,
    OPTIMIZER,
    OTHER,
    RARE,
    LayerTimes,
    StepEvents,
    StepTimes,
    alike,
    ordinary,
    typical,
)
from neuraldbg.capture.profiling.trace_window import TraceWindow
from neuraldbg.clocks import perf_counter
from neuraldbg.nouns import Fact, FactKey
from neuraldbg.ranks import own_rank

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.hooks import RemovableHandle

    from neuraldbg.capture.profiling.part import Profiling
    from neuraldbg.capture.profiling.step_clock import DeviceClock

_graph_task = torch._C._current_graph_task_id  # noqa: SLF001 (no public name)
SHARE = 0.02
"""Share of the training's time that a profile that was asked for may take: with the hundredth of ``overhead`` it stays
well below the 1.05 that is promised."""
_WARM = 8
"""Steps before the first that is timed if the profile was not asked for: they set up libraries, workers and caches."""
_RECENT, _SETTLED = 3, 1.5
"""Steps whose median is compared with that of as many before, and the ratio from which on steps still get faster."""
_APART = 3
"""Steps from one that is timed to the next: those between tell the time of a step that is not."""
_SMALL = 0.002
"""Share of the training so far that the next timing may take although the budget is spent: the three together then take
well below a hundredth, and the reading of full steps waits for as long."""
_LATEST = 2000
"""Steps after which a run whose budget affords no timing is left alone."""
_FIRST = 3
"""Steps that are timed at once if the profile was asked for, and in all if it was not."""
_KEPT = 64
"""Sampled steps of which the medians are taken, the newest; and twice as many others."""
_KEPT_EVENTS = 400_000
"""Events of all kept samples at most, but for the newest few."""
_SHAPES = 16
"""Shapes of the input whose counted operations are kept at most."""
_PAUSES, _STRIDE = 13, 5
"""Lengths of the pauses before a sample, 0 to 12 steps, and the stride in which they follow: without a common divisor,
so that each step of a cycle of several is met."""
_TRIES = 3
"""Attempts to count the operations of one shape."""
_ODD = 2.0
"""Ratio of a step's cost to that of others from which on it is not charged."""
_LAYER_S = 2e-5
"""Seconds that sampling takes for each layer, before any was measured."""


@dataclass
class _Waiting:
    """A sampled step whose marks are not all read."""

    step: int
    clock: ProcessorClock | DeviceClock
    marks: list[Any]
    events: StepEvents


class Timing(Part):
    """Samples steps, and makes the TIMING fact of them."""

    def __init__(self, profiling: Profiling) -> None:
        super().__init__(profiling)
        self._sampled = SampledStep(self.scene)
        self._cpu = ProcessorClock(self.scene.tally)
        self._lead = LeadOptimizer()
        self._handle: RemovableHandle | None = None
        self._last: float | None = None
        """The processor's mark at the end of the step before, None before the first."""
        self._begin: Any = None
        """The mark at the begin of the sampled step."""
        self._number = 0
        """Steps of the first optimizer that have ended."""
        self._step = 0
        self._waiting: list[_Waiting] = []
        self._times: deque[tuple[StepEvents, list[float]]] = deque(maxlen=_KEPT)
        """Events and spans of each sampled step."""
        self._others: deque[float] = deque(maxlen=2 * _KEPT)
        self._steps = self._first = self._taken = 0
        self._trained = 0.0
        """Seconds of the steps so far, without what this tool took."""
        self._due = _WARM
        """The step from which on the next may be timed, if the profile was not asked for."""
        self._order: dict[int, None] = {}
        self._described: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._counts: dict[Any, Counts] = {}
        self._tried: Counter[Any] = Counter()
        """Failed attempts to count the operations of a shape: the program's own profiler may end each."""
        self._newest: Any = None
        """The shapes of the input in the newest sampled step."""
        self._rate: MatmulRate | None = None
        self._clock = ""
        self._whole = True
        trace = profiling.trace
        self._trace: TraceWindow | None = None
        if trace is not None and profiling.folder is not None:
            file = profiling.folder / f"rank{own_rank().rank}-trace-{trace[0]}-{trace[1]}.json"
            self._trace = TraceWindow(trace, file, self.scene.tally)
        self._retired = False
        """True once all steps were sampled that are sampled by default."""
        self._owed = 0.0
        """Seconds that sampling has taken beyond its share so far."""
        self._pause = 0
        """Steps to wait although nothing is owed."""
        self._costs: deque[float] = deque(maxlen=_FIRST)
        """Costs of the newest sampled steps."""
        self._excused = self._charged = 0.0
        """Seconds that the profile has taken, as far as they were excused from the budget, and added to ``_owed``."""
        self._apart = self._once = 0.0
        """Seconds of the measurement that is made once: at this end of a step, and in all. Steps are sampled as often
        as without it."""

    # -- the schedule -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to watch the ends of steps."""
        wait_between_steps()
        self._sampled.start()
        with numbers_apart():
            self._handle = register_optimizer_step_post_hook(self._ended)
        if self._trace is not None:
            self._trace.next_step(0)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why there is no trace."""
        if self._trace is None or self._trace.written:
            return ()
        return (f"There is no trace: {self._trace.problem or 'the run ended before its first step'}.",)

    def stop(self) -> None:
        """Drop the step that is being sampled, write an unfinished trace, and remove all hooks."""
        if self._trace is not None:
            self._trace.end()
        wait_between_steps()
        self._sampled.stop()
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _ended(self, optimizer: Any, *_: Any) -> None:
        """Handle the end of a step of any optimizer: a global post hook."""
        # A step within a backward pass ends no step of ours: what is begun there ends with the node that runs.
        if self._retired or not self.scene.switch.here() or _graph_task() != -1:
            return
        began = perf_counter()
        try:
            self._sampled.after_step(began)
            if self._lead.ends(optimizer) and not (self.scene.optimizers.stepping or self.scene.light.stepping):
                self._step_ends(began)
        except Exception:  # noqa: BLE001 (a debugger must not break what it watches)
            self.scene.tally.caught("timing steps")
        finally:
            own_cost(self.scene.tally, began + self._apart)
            self._apart = 0.0
            if self.asked:
                taken = self.scene.tally.parts.get("profile", 0.0)
                try:
                    self.excuse(taken - self._excused)
                    self._excused = taken
                except Exception:  # noqa: BLE001 (as above)
                    self.scene.tally.caught("timing steps")

    def _step_ends(self, began: float) -> None:
        """End a step, sampled or not, and begin the next. The program's clock stands still since ``began``."""
        mark = self._cpu.mark(began)
        if self._lead.changed:  # since the last step of the other lead more went by than a step
            self._last = None
            self._sampled.drop()
        took = mark - self._last if self._last is not None else 0.0
        self._trained += took
        self._owed = max(self._owed - SHARE * took, 0.0)
        if self._sampled.on:
            self._finish(began)
            self._charge()
        elif self._last is not None:
            self._others.append(took)
        self._read()
        self._number += 1
        if self._trace is not None:
            self._trace.next_step(self._number)
        counts = self._counts_next()
        if counts is not None and not (clock := self._clock_now()).stopped():
            most = most_events([len(spans) for _, spans in self._times], self._sampled.dropped)
            self._sampled.begin(clock, counts=counts, most=most, longest_s=recorded_s(self._others))
            self._begin = self._sampled.clock.mark(began)
            self._taken += 1
            self._due = self._number + _APART
        elif not self.asked and (self._taken >= _FIRST or self._number > _LATEST):
            self._retired = True
        self._last = mark

    def _charge(self) -> None:
        """Charge what was spent since the sampled step before."""
        taken = self.scene.tally.parts.get("profile", 0.0) - self._once
        cost, self._charged = taken - self._charged, taken
        self._costs.append(cost)
        # Where another process had the processor meanwhile, one step says little of what the next will cost.
        self._owed += min(cost, _ODD * statistics.median(self._costs))

    def _counts_next(self) -> bool | None:
        """Return True to count the operations of the next step, False to time it, None to leave it alone."""
        if not self.asked:
            due = self._taken < _FIRST and self._number >= self._due and self._settled()
            return False if due and self._affordable() else None  # operations are counted only where that was asked for
        if self._trace is not None and self._trace.on:  # which takes time in each operator
            return None
        if self._number < 2:
            return None
        # A long step pays for much: without a pause of different lengths the steps behind long ones would be sampled.
        if self._steps >= _FIRST and self._owed > 0:
            self._pause = _STRIDE * self._taken % _PAUSES
            return None
        if self._pause > 0:
            self._pause -= 1
            return None
        new = self._newest is not None and self._newest not in self._counts and self._sampled.plain
        # Where shapes are ever new, every other sample is timed all the same.
        new = new and not self._sampled.counts
        return new and self._tried[self._newest] < _TRIES and len(self._counts) < _SHAPES

    def _affordable(self) -> bool:
        """Return True if the budget affords a timing, or it is so small that it may delay the next full steps: those
        take all that the budget has, and would leave nothing to the profile.
        """
        cost = _LAYER_S * len(self.scene.hooks.modules)
        return self.affords(cost) or cost < _SMALL * self._trained

    def _settled(self) -> bool:
        """Return True once steps do not get faster any more, as they do while caches fill."""
        newest = list(self._others)[-2 * _RECENT :]
        if len(newest) < 2 * _RECENT:
            return False
        before, recent = statistics.median(newest[:_RECENT]), statistics.median(newest[_RECENT:])
        return before <= _SETTLED * recent

    def _clock_now(self) -> ProcessorClock | DeviceClock:
        return clock_of(devices_of(self._parameters()), self.scene.tally)

    def _parameters(self) -> list[Tensor]:
        found = (each.weak() for each in self.scene.params.by_id.values())
        return [x for x in found if x is not None]

    # -- a sampled step is over ---------------------------------------------------------------------------------

    def _finish(self, began: float) -> None:
        """End the sampled step."""
        sampled = self._sampled
        if sampled.clock.stopped():
            sampled.drop()
        if sampled.spoiled or sampled.events.torn:
            sampled.end()
            return
        sampled.dropped = 0
        events = sampled.events
        end = sampled.clock.mark(began)
        needed = sampled.observer.needed if sampled.observer is not None else {}
        records = sampled.end()
        self._whole &= sampled.whole
        # Outputs as well: inputs that are given by name are not seen.
        events.shapes = tuple(sampled.described.get(layer, ((), ())) for layer in events.order()[:1])
        self._tried[self._newest] += sampled.counts and not records
        if records:
            self._counts[events.shapes] = counted(records, events, needed, sampled.made)
            self._forget_counts()
        elif not sampled.counts:
            marks = [self._begin, *events.marks, end]
            self._waiting.append(_Waiting(self.scene.step, sampled.clock, marks, events))
            self._newest, self._clock = events.shapes, sampled.clock.name
        self._order |= dict.fromkeys(events.order())
        self._described |= sampled.described
        if self.asked and self._rate is None:
            self._measure()

    def _forget_counts(self) -> None:
        """Forget the counts of shapes that come no more, if there are too many."""
        if len(self._counts) >= _SHAPES:
            live = {events.shapes for events, _ in self._times}
            for shapes in [each for each in self._counts if each not in live]:
                del self._counts[shapes]

    def _measure(self) -> None:
        """Measure what the machine can do, on the model's device and in the dtype of its matrix products."""
        parameters = self._parameters()
        devices = devices_of(parameters)
        if len(devices) != 1 or (device := devices.pop()).type not in ("cpu", "cuda"):
            return
        with unheard():
            dtypes = Counter(x.dtype for x in parameters if x.dtype.is_floating_point)
        dtype = self._sampled.autocast or (dtypes.most_common(1)[0][0] if dtypes else torch.float32)
        self._rate = MatmulRate(device, dtype)
        began = perf_counter()
        self._rate.measure()
        own_cost(self.scene.tally, began)
        self._apart = perf_counter() - began
        self._once += self._apart

    def _read(self) -> None:
        """Read the sampled steps whose marks can be read without waiting."""
        while self._waiting and self._waiting[0].clock.ready(self._waiting[0].marks):
            one = self._waiting.pop(0)  # before it is read: a device may refuse
            at = one.clock.seconds(one.marks)
            spans = [max(after - before, 0.0) for before, after in itertools.pairwise(at)]
            self._first = self._first if self._steps else one.step
            self._steps, self._step = self._steps + 1, one.step
            one.events.release()
            # Steps that did the same share their events: a long training keeps those of a few.
            same = next((events for events, _ in self._times if events.alike(one.events)), one.events)
            self._times.append((same, spans))
            while len(self._times) > _FIRST and sum(len(spans) for _, spans in self._times) > _KEPT_EVENTS:
                self._times.popleft()

    # -- the fact -----------------------------------------------------------------------------------------------

    def facts(self) -> tuple[Fact, ...]:
        """Return the TIMING fact of the sampled steps so far."""
        began, here = perf_counter(), self.scene.switch.here()
        try:
            if here or self._handle is None:  # only the thread that trains may query a device
                self._read()
            return (Fact(self._step, FactKey.TIMING.value, self._fact()),) if self._times else ()
        finally:
            if here:
                own_cost(self.scene.tally, began)

    def _fact(self) -> dict[str, Any]:
        kept = ordinary(list(self._times))
        step, same = typical(kept), alike(kept)
        shapes = [events.shapes for events, _ in kept]
        counts = mean_counts(shapes, [sum(spans) for _, spans in kept], self._counts)
        rate = self._rate.flops() if self._rate is not None else None
        phases, seen = step.phases, self._sampled.workers is not None
        return {
            "steps": self._steps,
            "first": self._first,
            "last": self._step,
            "clock": self._clock,
            "step_s": step.total,
            "data_s": phases[DATA] if seen else None,
            "forward_s": phases[FORWARD],
            "backward_s": phases[BACKWARD],
            "optimizer_s": phases[OPTIMIZER],
            "evaluation_s": phases[EVALUATION],
            "other_s": phases[OTHER],
            "usual_s": self._usual(mean=same < 1.0),
            "flops": counts.total if counts is not None else None,
            "machine_flops": rate,
            "machine": self._rate.words if self._rate is not None and rate is not None else "",
            "workers": self._sampled.workers,
            "batches": statistics.median(events.waits for events, _ in self._times) if seen else None,
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "threads": torch.get_num_threads(),
            "layers": [self._layer(layer, step.layers[layer], counts) for layer in self._listed(step)],
            "uncounted": sorted(counts.uncounted) if counts is not None else [],
            "backward_split": self._whole,
            "alike": same,
            "shapes": len(set(shapes)),
            "trace": self._trace.written if self._trace is not None else "",
        }

    def _usual(self, *, mean: bool) -> float | None:
        """Return the seconds of a step that was not sampled: the median, or the mean, in which the slowest few count as
        the next slower one does.
        """
        if not self._others:
            return None
        if not mean:
            return statistics.median(self._others)
        sorted_ = sorted(self._others)
        most = sorted_[-1 - int(RARE * len(sorted_))]
        return statistics.fmean(min(took, most) for took in sorted_)

    def _listed(self, step: StepTimes) -> list[int]:
        """Return the layers that were called, in order of first call."""
        return [layer for layer in self._order if layer in step.layers and self._sampled.paths[layer] is not None]

    def _layer(self, layer: int, times: LayerTimes, counts: Counts | None) -> dict[str, Any]:
        given, made = self._described.get(layer, ((), ()))
        return {
            "layer": self._sampled.paths[layer],
            "calls": times.calls,
            "forward_s": times.forward,
            "own_forward_s": times.own_forward,
            "backward_s": times.backward if times.differentiated else None,
            "own_backward_s": times.own_backward if times.differentiated else None,
            "flops": counts.forward.get(layer, 0.0) if counts is not None else None,
            "backward_flops": counts.backward.get(layer, 0.0) if counts is not None else None,
            "inputs": list(given),
            "outputs": list(made),
        }


PART = Timing
