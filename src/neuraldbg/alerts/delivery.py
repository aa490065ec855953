"""The delivery of alerts: alerts in on the training's thread, out of slow sinks on one thread of ours."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from neuraldbg import clocks
from neuraldbg.alerts.sink import NotDelivered
from neuraldbg.forks import tell_children
from neuraldbg.unlisted_thread import UnlistedThread, start_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.alerts.sink import Sink
    from neuraldbg.nouns.alert import Alert

QUEUE = 256
"""Alerts that wait for one sink at most; further ones are dropped and counted."""
FLUSH_S = 5.0
"""Seconds that alerts which still wait get when the session ends."""
_TICK_S = 0.05
"""Seconds between two looks at a sink that is busy."""


class _Line:
    """The alerts that wait for one sink, and what became of those before."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.waiting: deque[Alert] = deque()
        self.dropped = self.failed = 0
        self.why = ""
        """What the last failure was."""
        self.reported = False

    @property
    def done(self) -> bool:
        return not self.waiting and not self.sink.busy


class Delivery:
    """Delivers alerts to sinks. No method waits or raises, but ``close``, which waits ``FLUSH_S`` at most."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._lines = [_Line(sink) for sink in sinks]
        self._wake = threading.Event()
        self._lock = threading.RLock()  # a signal handler of the program may raise an alert while this is held
        self._thread: UnlistedThread | None = None
        self._alone = self._forked = False
        """``_alone``: there is no thread, and nothing is delivered before the end."""
        self._until: float | None = None
        """Monotonic time at which all is given up. None while the session goes on."""
        self.news = False
        """True if there is a problem that ``take_news`` has not returned."""
        tell_children(self)

    def put(self, alert: Alert) -> None:
        """Queue an alert for all sinks. Takes microseconds; the first one starts the thread."""
        if self._forked or not self._lines or self._until is not None:
            return
        with self._lock:
            for line in self._lines:
                if len(line.waiting) < QUEUE:
                    line.waiting.append(alert)
                else:
                    self.news |= not line.dropped
                    line.dropped += 1
            if self._thread is None:
                self._thread = UnlistedThread(self._run, "neuraldbg-alerts")
                self._alone = not start_thread(self._thread)
        self._wake.set()

    def take_news(self) -> list[str]:
        """Return a sentence for each sink that did not get an alert and was not reported before."""
        self.news = False
        new = [line for line in self._lines if (line.failed or line.dropped) and not line.reported]
        for line in new:
            line.reported = True
        return [
            f"an alert did not reach {line.sink.name}: {line.why or 'too many were waiting already'}" for line in new
        ]

    @property
    def notes(self) -> list[str]:
        """Return a sentence for each sink that did not get all alerts, for the coverage of the run."""
        found = []
        for line in self._lines:
            if line.failed:
                found.append(f"{_alerts(line.failed)} did not reach {line.sink.name}: {line.why}")
            if line.dropped:
                found.append(f"{_alerts(line.dropped)} for {line.sink.name} dropped: {QUEUE} were waiting already")
        return found

    def close(self, limit_s: float = FLUSH_S) -> None:
        """Deliver what waits, within a time limit, and end the thread. A second call does nothing."""
        if self._forked or self._until is not None:
            return
        self._until = clocks.monotonic() + limit_s
        self._wake.set()
        if self._alone:
            self._run()
        elif self._thread is not None:
            self._thread.ended_within(limit_s + 1.0)

    def _run(self) -> None:
        while True:
            ended = self._turn()
            if ended or (self._until is not None and clocks.monotonic() > self._until):
                break
            busy = any(line.sink.busy for line in self._lines)
            self._wake.wait(_TICK_S if busy or self._until is not None else None)
            self._wake.clear()
        self._give_up()

    def _turn(self) -> bool:
        """Let each sink work, the quick ones first and again before each slow one. Return True if all is over."""
        for line in self._lines:
            self._work(self._lines[0])
            self._work(line)
        return self._until is not None and all(line.done for line in self._lines)

    def _work(self, line: _Line) -> None:
        """Deliver to one sink as long as it is not busy; one alert only where that may have taken time."""
        more = True
        while more:
            left = None if self._until is None else max(0.0, self._until - clocks.monotonic())
            try:
                if line.sink.busy:
                    line.sink.turn(left)
                    more = not line.sink.busy
                elif line.waiting and left != 0.0:
                    line.sink.put(line.waiting.popleft())
                    more = line is self._lines[0] and not line.sink.busy
                else:
                    more = False
            except NotDelivered as error:
                self._count(line, str(error))
                more = False
            except Exception as error:  # noqa: BLE001 (an error of ours must end neither the thread nor the others)
                line.sink.abandon()
                self._count(line, f"an internal error of NeuralDBG, {type(error).__name__}: {error}")
                more = False

    def _count(self, line: _Line, why: str) -> None:
        line.failed, line.why = line.failed + 1, why
        self.news |= line.failed == 1

    def _give_up(self) -> None:
        for line in self._lines:
            left = len(line.waiting) + line.sink.busy
            line.waiting.clear()
            line.sink.abandon()
            if left:
                why = line.why or "the session ended before they were delivered"
                self.news |= not line.failed
                line.failed, line.why = line.failed + left, why

    def in_child(self) -> None:
        """Deliver nothing in a forked child: the thread is in its parent."""
        self._forked = True


def _alerts(count: int) -> str:
    return "1 alert" if count == 1 else f"{count:,} alerts"
