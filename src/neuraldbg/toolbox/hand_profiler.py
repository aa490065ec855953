"""The profiler of a session by hand: timers around code, seconds and bytes of layers in; facts of a profile out.

What is recorded becomes the facts ``timing``, ``footprint`` and ``growth``, so that the stage ``profile/`` judges it,
and ``neuraldbg profile`` and the report show it, as they do for a training that is watched.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from neuraldbg.arguments import is_number, layer_name, text, whole
from neuraldbg.clocks import perf_counter
from neuraldbg.errors import ConfigError
from neuraldbg.memory_slope import Readings
from neuraldbg.nouns import Fact, RunRecord
from neuraldbg.nouns.facts.footprint import GIVEN, FootprintFact, LayerFootprint
from neuraldbg.nouns.facts.growth import GrowthFact
from neuraldbg.nouns.json import jsonable
from neuraldbg.nouns.measures import percent, seconds
from neuraldbg.process_memory import resident_bytes
from neuraldbg.profile import profile as profile_of
from neuraldbg.toolbox.hand_timers import OTHERS, TIMERS, HandTimers, Timer
from neuraldbg.toolbox.timed_steps import LayerTotal, TimedSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neuraldbg.nouns.facts.known import Known
    from neuraldbg.nouns.facts.timing import TimerTiming
    from neuraldbg.nouns.profile import Bottleneck, Profile
    from neuraldbg.toolbox.timed_steps import TimedStep

LAYERS = 10_000
"""Layers that are told apart; further ones are counted together."""
RECORDED = 100
"""Timers that a fact has at most, those of the most time: a fact is written again and again."""
_NAMED = 20
"""Names in one note at most."""


class HandProfiler:
    """Times code and layers of a program that gives its numbers by hand, and says where its time and memory go.

    ::

        with session.profiler.timer("data"):
            batch = next(batches)
        with session.profiler.timer("forward"):
            loss = forward(batch)

    ``step`` returns the number of the step that is open. A timer with one of these names is a part of the step, or the
    step itself: ``data`` (``data_loading``, ``dataloader``, ``load_batch``), ``forward``, ``backward``, ``optimizer``
    (``optimizer_step``), ``evaluation`` (``eval``, ``validation``), ``step`` (``train_step``). Without a timer
    ``step``, a step takes from the first that is timed in it to the first that is timed in the next. Parts of a step
    are timers of the thread that made the profiler, or, if it has none in a step, of the first other one.

    Work that a framework does asynchronously must be waited for inside of a timer (``jax.block_until_ready``): else its
    launch is timed. Memory is constant, however often a timer runs: quantiles are exact up to 1,000 runs, and then at
    most 0.5% off (``duration_sketch.py``). All methods may be called in any thread.

    >>> from neuraldbg.toolbox.hand_profiler import HandProfiler
    """

    def __init__(self, *, step: Callable[[], int]) -> None:
        self._step = step
        self._lock = threading.RLock()  # a signal handler of the program may time while it is held
        self._steps = TimedSteps(threading.get_ident())
        self._timers = HandTimers(self._open_step, self._lock)
        self._types: dict[str, str] = {}
        self._peaks: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._peak: tuple[int, str, int] | None = None
        """Bytes, layer and step of the largest ``memory_usage``."""
        self._memory = {"resident": Readings(), "device_memory": Readings()}
        self._read: dict[str, float] = {}
        self._given: dict[str, float] = {}
        """Bytes by the names of the scalars, as they were read when the open step began, and given in it."""
        self._met: tuple[int, int] | None = None
        """First and last step in which memory was read."""

    # -- timers -------------------------------------------------------------------------------------------------

    def start_timer(self, name: str) -> None:
        """Start a timer in this thread, inside of those that run there; also inside of itself.

        >>> profiler = HandProfiler(step=lambda: 0)
        >>> profiler.start_timer("layer_forward")
        >>> profiler.end_timer("layer_forward") >= 0
        True
        """
        self._timers.start(text(name, "a timer is named by text"), None)

    def end_timer(self, name: str) -> float:
        """End the timer that was started last in this thread. Return its seconds, with the timers inside of it.

        Raises ConfigError for any other timer: the error says which must be ended first. Nothing is ended then.

        >>> profiler.end_timer("layer_backward")
        Traceback (most recent call last):
        neuraldbg.errors.ConfigError: ...
        """
        return self._timers.end(name)

    def leave_out(self, seconds: float) -> None:
        """Leave seconds that the session has taken to record out of the time of the open step. They must not lie in a
        timer that runs.
        """
        with self._lock:
            if self._steps.open is not None and not self._timers.running():
                self._steps.open.left_out += seconds

    def timer(self, name: str) -> Timer:
        """Return a timer for ``with``, or for a function as its decorator. Its time counts if the code in it raises.

        >>> profiler = HandProfiler(step=lambda: 0)
        >>> with profiler.timer("data") as span:
        ...     batch = list(range(10))
        >>> span.seconds == profiler.timings()["data"].total_s
        True
        """
        return Timer(self._timers, text(name, "a timer is named by text"))

    def _open_step(self) -> TimedStep:
        """Return the step that is open, and begin it if it is new."""
        number = self._step()
        step = self._steps.open
        return step if step is not None and step.number == number else self._begin(number)

    def _begin(self, number: int) -> TimedStep:
        """Begin a step, unless another thread has, and read the resident memory at its begin."""
        with self._lock:
            step = self._steps.open
            if step is not None and step.number == number:
                return step
            if step is not None:
                for name, value in {**self._read, **self._given}.items():
                    self._memory[name].add(step.number, value)
                    self._met = (self._met[0] if self._met is not None else step.number, step.number)
            resident = resident_bytes()
            self._read, self._given = {} if resident is None else {"resident": float(resident)}, {}
            return self._steps.begin(number, perf_counter())

    # -- layers and memory --------------------------------------------------------------------------------------

    def record_layer_execution(
        self,
        layer_name: str,
        layer_type: str = "",
        forward_time: float | timedelta = 0.0,
        backward_time: float | timedelta | None = None,
        memory_usage: int | None = None,
        parameter_count: int | None = None,
    ) -> None:
        """Record one call of a layer in the step that is open.

        Times are seconds, or a ``datetime.timedelta``, with the layers inside of it: ``block.0.attention`` is inside of
        ``block.0``. ``memory_usage`` is the most bytes that were in use while it ran. None is what is not known. Raises
        ConfigError for a time or a number below zero, or one that is not finite.

        >>> profiler = HandProfiler(step=lambda: 0)
        >>> profiler.record_layer_execution("block.0", "TransformerBlock", 0.004, 0.009, parameter_count=1_000)
        >>> profiler.layer_types
        {'block.0': 'TransformerBlock'}
        """
        path, kind = _layer_name(layer_name), text(layer_type, "layer_type")
        forward = _seconds(forward_time, "forward_time")
        backward = None if backward_time is None else _seconds(backward_time, "backward_time")
        used = None if memory_usage is None else _amount(memory_usage, "memory_usage")
        held = None if parameter_count is None else _amount(parameter_count, "parameter_count")
        with self._lock:
            step = self._open_step()
            if path not in self._types and len(self._types) >= LAYERS:
                path = OTHERS
            self._types[path] = kind or self._types.get(path, "")
            total = step.layers.setdefault(path, LayerTotal())
            total.calls += 1
            total.forward += forward
            if backward is not None:
                total.backward = (total.backward or 0.0) + backward
            if held is not None:
                self._counts[path] = held
            if used is not None:
                self._peaks[path] = max(used, self._peaks.get(path, 0))
                if self._peak is None or used > self._peak[0]:
                    self._peak = used, path, step.number

    def record_memory(self, resident: int | None = None, device: int | None = None) -> None:
        """Record the bytes of memory in use in the step that is open: of the process, and of the device.

        Without any, the resident memory of the process is read, as it is by itself at the begin of each step in which
        something is timed. Raises ConfigError for a number below zero.

        >>> profiler = HandProfiler(step=lambda: 0)
        >>> profiler.record_memory(resident=2**30, device=2**28)
        >>> profiler.memory()
        {'resident': 1073741824.0, 'device_memory': 268435456.0}
        """
        given = {"resident": resident, "device_memory": device}
        if resident is None and device is None:
            given["resident"] = resident_bytes()
        amounts = {name: _amount(value, name) for name, value in given.items() if value is not None}
        with self._lock:
            self._open_step()
            self._given.update({name: float(value) for name, value in amounts.items()})

    def memory(self) -> dict[str, float]:
        """Return the bytes of memory that were given in the step that is open, as its scalars ``resident`` and
        ``device_memory``; where none were, the resident memory is read. What is not known is absent.
        """
        with self._lock:
            step = self._steps.open
            found = dict(self._given) if step is not None and step.number == self._step() else {}
        if "resident" not in found and (resident := resident_bytes()) is not None:
            found = {"resident": float(resident), **found}
        return found

    @property
    def layer_types(self) -> dict[str, str]:
        """Types of the layers that were recorded, as they were given, by path; "" if none was."""
        with self._lock:
            return dict(self._types)

    # -- what was measured --------------------------------------------------------------------------------------

    def timings(self) -> dict[str, TimerTiming]:
        """Return the times of each timer that has ended, that of the most time without timers inside of it first.

        Quantiles are those of the calls (``inverted_cdf`` of numpy), exact up to 1,000 calls, then at most 0.5% off.

        >>> profiler = HandProfiler(step=lambda: 0)
        >>> with profiler.timer("step"), profiler.timer("data"):
        ...     pass
        >>> times = profiler.timings()
        >>> times["step"].total_s >= times["data"].total_s == times["data"].own_s
        True
        """
        return self._timers.timings()

    def facts(self, steps: int) -> tuple[Fact, ...]:
        """Return what was recorded so far as the facts ``timing``, ``footprint`` and ``growth``, as far as it is known.

        ``steps`` is the number of steps of the session that are over. A step that is still open is left out of the
        times, unless it is the only one.
        """
        with self._lock:
            step = self._steps.open
            ended = step is not None and (step.number < whole(steps, "steps") or step.number != self._step())
            known = self._known(ended=ended)
            last = step.number if step is not None else 0
        facts = []
        for one in known:
            value = jsonable(one)
            assert isinstance(value, dict)
            facts.append(Fact(last, one.KEY, value))
        return tuple(facts)

    def _known(self, *, ended: bool) -> list[Known]:
        found: list[Known] = []
        timing = self._steps.timing(ended=ended)
        if timing is not None and (self._timers.names or timing.layers):
            typed = tuple(replace(one, type=self._types.get(one.layer, "")) for one in timing.layers)
            timers = tuple(self._timers.timings().values())[:RECORDED]
            found.append(replace(timing, layers=typed, timers=timers))
        if self._peaks or self._counts:
            found.append(self._footprint())
        slopes = {name: readings.slope() for name, readings in self._memory.items()}
        spans = [span for name in slopes if slopes[name] is not None and (span := self._memory[name].span())]
        if spans and self._met is not None:
            slope = {"resident_per_step": slopes["resident"], "device_per_step": slopes["device_memory"]}
            first, last = min(span[0] for span in spans), max(span[1] for span in spans)
            known = {"first": self._met[0], "last": self._met[1], "slope_first": first, "slope_last": last}
            found.append(GrowthFact(**known, **slope, by_hand=True))  # type: ignore[arg-type]
        return found

    def _footprint(self) -> FootprintFact:
        peak, at, step = self._peak or (None, "", self._steps.open.number if self._steps.open is not None else 0)
        layers = tuple(
            LayerFootprint(layer=path, peak=self._peaks.get(path), parameter_count=self._counts.get(path))
            for path in self._types
            if path in self._peaks or path in self._counts
        )
        return FootprintFact(step=step, method=GIVEN, peak=peak, peak_at=f"'{at}'" if at else "", layers=layers)

    def profile(self) -> Profile:
        """Return where the time and the memory went so far, and the bottlenecks: what ``neuraldbg profile`` shows.

        >>> HandProfiler(step=lambda: 0).profile()
        <Profile: no step was timed>
        """
        return profile_of(RunRecord(facts=self.facts(0)))

    def bottlenecks(self) -> tuple[Bottleneck, ...]:
        """Return what costs a large share of a step's time, and memory that grows; () if there is none, or if fewer
        than two steps were timed: ``profile().notes`` says so.

        >>> HandProfiler(step=lambda: 0).bottlenecks()
        ()
        """
        return self.profile().bottlenecks

    def suggestions(self) -> tuple[str, ...]:
        """Return a sentence for each bottleneck: what was measured, and what to do about it.

        >>> HandProfiler(step=lambda: 0).suggestions()
        ()
        """
        return tuple(f"{one.text}. {one.remedy}".strip().rstrip(".") + "." for one in self.bottlenecks())

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what went wrong with timers, and what was counted together, a sentence each."""
        timers, running = self._timers, self._timers.running()
        pooled = OTHERS in timers.names, OTHERS in self._types
        found = [f"Still running: {_names(running)}."] if running else []
        found += [f"Never ended: {_names(timers.left)}. Their time is not known."] if timers.left else []
        found += [f"Ended while not running, or out of order: {_names(timers.misused)}."] if timers.misused else []
        found += [f"There are more than {TIMERS:,} names of timers: further ones are counted as {OTHERS}."] * pooled[0]
        found += [f"There are more than {LAYERS:,} layers: further ones are counted as {OTHERS}."] * pooled[1]
        return tuple(found)

    def summary(self) -> str:
        """Return timers, parts of a step, bottlenecks and notes as text.

        >>> "data" in profiler.summary()
        True
        """
        timings = self.timings()
        lines = []
        if timings:
            wide = max(len("timer"), *(len(name) for name in timings))
            lines.append(f"{'timer':<{wide}}  {'calls':>9}  {'own':>9}  {'share':>5}  {'mean':>9}  {'95%':>9}")
        for name, one in timings.items():
            cells = f"{one.calls:>9,}  {seconds(one.own_s):>9}  {percent(one.share):>5}"
            lines.append(f"{name:<{wide}}  {cells}  {seconds(one.mean_s):>9}  {seconds(one.p95_s):>9}")
        return "\n".join([*lines, str(self.profile()), *self.notes])


def _layer_name(value: object) -> str:
    return layer_name(value)


def _seconds(value: Any, what: str) -> float:
    """Return seconds, given as a number of any library or as a timedelta."""
    took = value.total_seconds() if isinstance(value, timedelta) else value
    try:
        took = float(took) if is_number(took) and not isinstance(took, bool) else -1.0
    except (TypeError, ValueError):  # an array of several numbers
        took = -1.0
    if not 0 <= took < float("inf"):
        message = f"{what}: give seconds from 0 on, or a timedelta, not {value!r:.60}"
        raise ConfigError(message)
    return took


def _amount(value: Any, what: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    found = whole(value, what)
    if found < 0:
        message = f"{what}: give a number from 0 on, not {found}"
        raise ConfigError(message)
    return found


def _names(counted: Mapping[str, int]) -> str:
    """Write names with their numbers: "data, step (3 times)"."""
    told = [f"{name}{f' ({times:,} times)' if times > 1 else ''}" for name, times in list(counted.items())[:_NAMED]]
    more = len(counted) - len(told)
    return ", ".join(told) + (f" and {more:,} more" if more > 0 else "")
