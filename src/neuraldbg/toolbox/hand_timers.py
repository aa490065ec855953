"""Timers around code: names in, the time between the starts and the ends of each out, and the parts of steps.

Each thread has its own stack of timers that run: a timer is inside of those that were started before it and run still.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from neuraldbg.arguments import text
from neuraldbg.clocks import perf_counter
from neuraldbg.errors import ConfigError
from neuraldbg.nouns.facts.timing import TimerTiming
from neuraldbg.nouns.measures import seconds
from neuraldbg.toolbox.duration_sketch import DurationSketch
from neuraldbg.toolbox.timed_steps import DATA, part_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from neuraldbg.toolbox.timed_steps import TimedStep

    F = TypeVar("F", bound=Callable[..., Any])

TIMERS = 1_000
"""Names of timers that are told apart; further ones, as of a program that numbers them, are counted together."""
OTHERS = "(others)"
"""Name of what is counted together."""
_NAMED = 20
"""Timers in one error at most."""


class Span:
    """One run of a timer, from its start to its end."""

    __slots__ = ("began", "inside", "name", "owner", "parts_inside", "seconds", "step")

    def __init__(self, name: str, step: TimedStep, owner: Timer | None) -> None:
        self.name, self.step, self.owner = name, step, owner
        self.seconds: float | None = None
        """Seconds from its start to its end; None while it runs."""
        self.inside = 0.0
        """Seconds in timers inside of it."""
        self.parts_inside = 0.0
        """Seconds in timers inside of it that are parts of the step."""
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
    """The times of all timers with one name."""

    __slots__ = ("own", "part", "sketch", "total")

    def __init__(self, part: str | None) -> None:
        self.part = part
        """The part of the step that they are; None if their name says none."""
        self.total = self.own = 0.0
        self.sketch = DurationSketch()


class Timer:
    """A timer for ``with``, or for a function as its decorator. One may run in several threads and inside of itself."""

    def __init__(self, timers: HandTimers, name: str) -> None:
        self._timers, self.name = timers, name

    def __enter__(self) -> Span:
        return self._timers.start(self.name, self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._timers.leave(self)

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


class HandTimers:
    """The timers of one program. ``step`` returns the step that is open, and begins it if it is new."""

    def __init__(self, step: Callable[[], TimedStep], lock: threading.RLock) -> None:
        self._step, self._lock = step, lock
        self._running = _Running()
        self._stacks: dict[int, tuple[weakref.ref[_Owner], list[Span]]] = {}
        """The timers that run, by the identity of the object that dies with their thread."""
        self._timers: dict[str, _Timed] = {}
        self.left: Counter[str] = Counter()
        """Timers that were never ended, by name."""
        self.misused: Counter[str] = Counter()
        """Ends of timers that did not run, or not innermost, by name."""

    def start(self, name: str, owner: Timer | None) -> Span:
        spans = self._running.spans
        if spans is None:
            spans = self._register()
        span = Span(name, self._step(), owner)
        spans.append(span)
        return span

    def end(self, name: str) -> float:
        """End the timer that was started last in this thread. Return its seconds. Raises ConfigError for any other."""
        ended = perf_counter()
        spans = self._running.spans
        if not spans or spans[-1].name != name:
            raise self._misplaced(text(name, "a timer is named by text"), spans or [])
        return self._end(spans, ended)

    def _register(self) -> list[Span]:
        """Return the list of the timers that run in this thread, which is new here."""
        spans: list[Span] = []
        owner = _Owner()
        key = id(owner)

        def ended(_: object) -> None:
            with self._lock:
                self._stacks.pop(key, None)
                self.left.update(span.name for span in spans)

        with self._lock:
            self._stacks[key] = weakref.ref(owner, ended), spans
        self._running.spans, self._running.owner = spans, owner
        return spans

    def leave(self, owner: Timer) -> None:
        """End the innermost span of a timer. Those that were started inside of it and not ended are over, too."""
        ended = perf_counter()
        spans = self._running.spans or []
        at = next((at for at in range(len(spans) - 1, -1, -1) if spans[at].owner is owner), None)
        if at is None:
            return
        with self._lock:
            self.left.update(span.name for span in spans[at + 1 :])
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
            timed = self._timers.get(name) or self._new(name)
            timed.sketch.add(took)
            timed.own += took - span.inside
            part = timed.part
            if around is None:
                timed.total += took
                span.step.of_thread(threading.get_ident()).outermost += took
            elif not any(one.name == name for one in spans):
                timed.total += took
            if part is not None:
                times = span.step.of_thread(threading.get_ident())
                times.parts[part] = times.parts.get(part, 0.0) + took - span.parts_inside
                times.batches += part == DATA
        if around is not None:
            around.inside += took
            around.parts_inside += took if part is not None else span.parts_inside
        return took

    def _new(self, name: str) -> _Timed:
        """Return what is known of a timer that ends for the first time; of too many names that of the others. Of these
        none is a part of the step.
        """
        if len(self._timers) < TIMERS:
            return self._timers.setdefault(name, _Timed(part_of(name)))
        return self._timers.setdefault(OTHERS, _Timed(None))

    def _misplaced(self, name: str, spans: list[Span]) -> ConfigError:
        """Return the error of a timer that cannot be ended here."""
        with self._lock:
            if name in self.misused or len(self.misused) < TIMERS:
                self.misused[name] += 1
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

    @property
    def names(self) -> set[str]:
        """Names of the timers that have ended."""
        return set(self._timers)

    def running(self) -> Counter[str]:
        """Return the timers that run, in all threads, by name."""
        with self._lock:
            return Counter(span.name for _, spans in self._stacks.values() for span in list(spans))

    def timings(self) -> dict[str, TimerTiming]:
        """Return the times of each timer that has ended, that of the most time of its own first."""
        with self._lock:
            whole = sum(one.own for one in self._timers.values())
            found = [_timing(name, one, whole) for name, one in self._timers.items()]
        return {one.name: one for one in sorted(found, key=lambda one: -one.own_s)}


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
