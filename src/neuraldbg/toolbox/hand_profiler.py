"""The profiler of a session by hand: timers around code, seconds and bytes of layers in; facts of a profile out.

What is recorded becomes the facts ``timing``, ``footprint`` and ``growth``, so that the stage ``profile/`` judges it,
and ``neuraldbg profile`` and the report show it, as they do for a training that is watched.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from neuraldbg.arguments import is_number, layer_name, text, whole
from neuraldbg.clocks import perf_counter
from neuraldbg.errors import ConfigError
from neuraldbg.memory_slope import Readings
from neuraldbg.nouns import Fact, RunRecord
from neuraldbg.nouns.facts.footprint import GIVEN, FootprintFact, LayerFootprint
from neuraldbg.nouns.facts.growth import GrowthFact
from neuraldbg.nouns.facts.timing import TimerTiming
from neuraldbg.nouns.json import jsonable
from neuraldbg.nouns.measures import percent, seconds
from neuraldbg.process_memory import resident_bytes
from neuraldbg.profile import profile as profile_of
from neuraldbg.toolbox.duration_sketch import DurationSketch
from neuraldbg.toolbox.timed_steps import DATA, LayerTotal, TimedStep, TimedSteps, part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from neuraldbg.nouns.facts.known import Known
    from neuraldbg.nouns.profile import Bottleneck, Profile

    F = TypeVar("F", bound=Callable[..., Any])

TIMERS = 1_000
"""Names of timers that are told apart; further ones, as of a program that numbers them, are counted together."""
LAYERS = 10_000
"""Layers that are told apart; further ones are counted together."""
RECORDED = 100
"""Timers that a fact has at most, those of the most time: a fact is written again and again."""
OTHERS = "(others)"
"""Name of what is counted together."""
_NAMED = 20
"""Names in one note at most."""


class Span:
    """One run of a timer, from its start to its end."""

    __slots__ = ("began", "inside", "name", "owner", "part", "parts_inside", "seconds", "step")

    def __init__(self, name: str, step: TimedStep, owner: Timer | None) -> None:
        self.name, self.step, self.owner = name, step, owner
        self.seconds: float | None = None
        """Seconds from its start to its end; None while it runs."""
        self.inside = 0.0
        """Seconds in timers inside of it."""
        self.parts_inside = 0.0
        """Seconds in timers inside of it that are parts of the step."""
        self.part = part_of(name)
        self.began = perf_counter()

    def __repr__(self) -> str:
        return f"<Span {self.name!r}: {'running' if self.seconds is None else seconds(self.seconds)}>"


class _Running(threading.local):
    """The timers that run in a thread, the innermost last."""

    spans: list[Span] | None = None
    owner: object = None


class _Owner:
    """Dies with its thread."""

    __slots__ = ("__weakref__",)


class _Timed:
    """What is known of the timers with one name."""

    __slots__ = ("own", "sketch", "total")

    def __init__(self) -> None:
        self.total = self.own = 0.0
        self.sketch = DurationSketch()


class Timer:
    """A timer for ``with``, or for a function as its decorator. One may run in several threads and inside of itself."""

    def __init__(self, profiler: HandProfiler, name: str) -> None:
        self._profiler, self.name = profiler, name

    def __enter__(self) -> Span:
        return self._profiler._start(self.name, self)  # noqa: SLF001 (made by it)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._profiler._leave(self)  # noqa: SLF001 (made by it)

    def __call__(self, function: F) -> F:
        """Return a function that is timed at each call. Raises ConfigError for a generator or a coroutine, whose call
        returns before its code has run.
        """
        given: Any = function
        later = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if not callable(given) or any(is_one(given) for is_one in later):
            message = (
                f"a timer times functions, not {function!r:.60}: write `with profiler.timer({self.name!r}):` in it"
            )
            raise ConfigError(message)

        @functools.wraps(function)
        def timed(*args: Any, **named: Any) -> Any:
            with self:
                return function(*args, **named)

        return timed  # type: ignore[return-value]


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
    """

    def __init__(self, *, step: Callable[[], int]) -> None:
        self._step = step
        self._lock = threading.RLock()  # a signal handler of the program may time while it is held
        self._running = _Running()
        self._stacks: dict[int, tuple[weakref.ref[_Owner], list[Span]]] = {}
        """The timers that run, by the identity of the object that dies with their thread."""
        self._timers: dict[str, _Timed] = {}
        self._steps = TimedSteps(threading.get_ident())
        self._types: dict[str, str] = {}
        self._peaks: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._peak: tuple[int, str, int] | None = None
        """Bytes, layer and step of the largest ``memory_usage``."""
        self._memory = {"resident": Readings(), "device_memory": Readings()}
        self._newest: dict[str, float] = {}
        """Bytes by the names of the scalars, as they were given in the step that is open."""
        self._met: tuple[int, int] | None = None
        """First and last step in which memory was read."""
        self._left: Counter[str] = Counter()
        """Timers that were never ended, by name."""
        self._misused: Counter[str] = Counter()
        """Ends of timers that did not run, or not innermost, by name."""

    # -- timers -------------------------------------------------------------------------------------------------

    def start_timer(self, name: str) -> None:
        """Start a timer in this thread, inside of those that run there; also inside of itself.

        >>> profiler = HandProfiler(step=lambda: 0)
        >>> profiler.start_timer("layer_forward")
        >>> profiler.end_timer("layer_forward") >= 0
        True
        """
        self._start(text(name, "a timer is named by text"), None)

    def end_timer(self, name: str) -> float:
        """End the timer that was started last in this thread. Return its seconds, with the timers inside of it.

        Raises ConfigError for any other timer: the error says which must be ended first. Nothing is ended then.
        """
        ended = perf_counter()
        spans = self._running.spans
        if not spans or spans[-1].name != name:
            raise self._misplaced(text(name, "a timer is named by text"), spans or [])
        return self._end(spans, ended)

    def timer(self, name: str) -> Timer:
        """Return a timer for ``with``, or for a function as its decorator. Its time counts if the code in it raises.

        >>> profiler = HandProfiler(step=lambda: 0)
        >>> with profiler.timer("data") as span:
        ...     batch = list(range(10))
        >>> span.seconds == profiler.timings()["data"].total_s
        True
        """
        return Timer(self, text(name, "a timer is named by text"))

    def _start(self, name: str, owner: Timer | None) -> Span:
        spans = self._running.spans
        if spans is None:
            spans = self._register()
        number = self._step()
        step = self._steps.open
        if step is None or step.number != number:
            step = self._begin(number)
        span = Span(name, step, owner)
        spans.append(span)
        return span

    def _register(self) -> list[Span]:
        """Return the list of the timers that run in this thread, which is new here."""
        spans: list[Span] = []
        owner = _Owner()
        key = id(owner)

        def ended(_: object) -> None:
            with self._lock:
                self._stacks.pop(key, None)
                self._left.update(span.name for span in spans)

        with self._lock:
            self._stacks[key] = weakref.ref(owner, ended), spans
        self._running.spans, self._running.owner = spans, owner
        return spans

    def _begin(self, number: int) -> TimedStep:
        """Begin a step, unless another thread has, and read the resident memory at its begin."""
        with self._lock:
            step = self._steps.open
            if step is not None and step.number == number:
                return step
            self._newest = {}
            resident = resident_bytes()
            if resident is not None:
                self._remember("resident", resident, number)
            return self._steps.begin(number, perf_counter())

    def _leave(self, owner: Timer) -> None:
        """End the innermost span of a timer. Those that were started inside of it and not ended are over, too."""
        ended = perf_counter()
        spans = self._running.spans or []
        at = next((at for at in range(len(spans) - 1, -1, -1) if spans[at].owner is owner), None)
        if at is None:
            return
        with self._lock:
            self._left.update(span.name for span in spans[at + 1 :])
        for span in spans[at + 1 :]:  # what has ended inside of them was inside of this one
            spans[at].inside += span.inside
            spans[at].parts_inside += span.parts_inside
        del spans[at + 1 :]
        self._end(spans, ended)

    def _end(self, spans: list[Span], ended: float) -> float:
        """End the innermost timer of a thread."""
        span = spans.pop()
        name, took = span.name, ended - span.began
        span.seconds = took
        around = spans[-1] if spans else None
        with self._lock:
            timed = self._timers.get(name)
            if timed is None:
                timed = self._timers.setdefault(name if len(self._timers) < TIMERS else OTHERS, _Timed())
            timed.sketch.add(took)
            timed.own += took - span.inside
            if around is None or not any(one.name == name for one in spans):
                timed.total += took
            if span.part is not None or around is None:
                times = span.step.of_thread(threading.get_ident())
                if span.part is not None:
                    times.parts[span.part] = times.parts.get(span.part, 0.0) + took - span.parts_inside
                    times.batches += span.part == DATA
                if around is None:
                    times.outermost += took
        if around is not None:
            around.inside += took
            around.parts_inside += took if span.part is not None else span.parts_inside
        return took

    def _misplaced(self, name: str, spans: list[Span]) -> ConfigError:
        """Return the error of a timer that cannot be ended here."""
        with self._lock:
            if name in self._misused or len(self._misused) < TIMERS:
                self._misused[name] += 1
            elsewhere = any(span.name == name for _, others in self._stacks.values() for span in list(others))
        if any(span.name == name for span in spans):
            inner = spans[-1].name
            return ConfigError(
                f"the timer {name!r} cannot end before {inner!r}, which was started inside of it: end {inner!r} first, "
                f"or write `with profiler.timer({inner!r}):`"
            )
        running = f"; running here: {', '.join(span.name for span in spans[-_NAMED:])}" if spans else ""
        if elsewhere:
            return ConfigError(
                f"the timer {name!r} runs in another thread: end it in the thread that started it{running}"
            )
        return ConfigError(f"the timer {name!r} does not run: start_timer({name!r}) comes first{running}")

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
        number = self._step()
        with self._lock:
            step = self._steps.open
            if step is None or step.number != number:
                step = self._begin(number)
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
                    self._peak = used, path, number

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
        number = self._step()
        with self._lock:
            if self._steps.open is None or self._steps.open.number != number:
                self._begin(number)
            for name, value in amounts.items():
                self._remember(name, value, number)
                self._newest[name] = float(value)

    def _remember(self, name: str, value: int, number: int) -> None:
        self._memory[name].add(number, float(value))
        self._met = (self._met[0] if self._met is not None else number, number)

    def memory(self) -> dict[str, float]:
        """Return the bytes of memory that were given in the step that is open, as its scalars ``resident`` and
        ``device_memory``; where none were, the resident memory is read. What is not known is absent.
        """
        with self._lock:
            step = self._steps.open
            found = dict(self._newest) if step is not None and step.number == self._step() else {}
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
        with self._lock:
            whole = sum(one.own for one in self._timers.values())
            found = [_timing(name, one, whole) for name, one in self._timers.items()]
        return {one.name: one for one in sorted(found, key=lambda one: -one.own_s)}

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
        if timing is not None and (self._timers or timing.layers):
            typed = tuple(replace(one, type=self._types.get(one.layer, "")) for one in timing.layers)
            timers = tuple(self.timings().values())[:RECORDED]
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
        """Return a sentence for each bottleneck: what was measured, and what to do about it."""
        return tuple(f"{one.text}. {one.remedy}".strip().rstrip(".") + "." for one in self.bottlenecks())

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what went wrong with timers, and what was counted together, a sentence each."""
        with self._lock:
            running = Counter(span.name for _, spans in self._stacks.values() for span in list(spans))
            pooled = OTHERS in self._timers, OTHERS in self._types
        found = [f"Still running: {_names(running)}."] if running else []
        found += [f"Never ended: {_names(self._left)}. Their time is not known."] if self._left else []
        found += [f"Ended while not running, or out of order: {_names(self._misused)}."] if self._misused else []
        found += [f"There are more than {TIMERS:,} names of timers: further ones are counted as {OTHERS}."] * pooled[0]
        found += [f"There are more than {LAYERS:,} layers: further ones are counted as {OTHERS}."] * pooled[1]
        return tuple(found)

    def summary(self) -> str:
        """Return timers, parts of a step, bottlenecks and notes as text."""
        timings = self.timings()
        lines = []
        if timings:
            wide = max(len("timer"), *(len(name) for name in timings))
            lines.append(f"{'timer':<{wide}}  {'calls':>9}  {'own':>9}  {'share':>5}  {'mean':>9}  {'95%':>9}")
        for name, one in timings.items():
            cells = f"{one.calls:>9,}  {seconds(one.own_s):>9}  {percent(one.share):>5}"
            lines.append(f"{name:<{wide}}  {cells}  {seconds(one.mean_s):>9}  {seconds(one.p95_s):>9}")
        return "\n".join([*lines, str(self.profile()), *self.notes])


def _timing(name: str, one: _Timed, whole: float) -> TimerTiming:
    calls = one.sketch.count
    return TimerTiming(
        name=name,
        calls=calls,
        total_s=one.total,
        own_s=one.own,
        median_s=one.sketch.quantile(0.5),
        p95_s=one.sketch.quantile(0.95),
        max_s=one.sketch.largest,
        share=one.own / whole if whole > 0 else 0.0,
        mean_s=one.sketch.total / calls,
    )


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
