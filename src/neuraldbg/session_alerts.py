"""The alerts of one session: its rules and hooks raise them; the terminal, Python's logging, the record and the sinks
that the user asked for get them.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from neuraldbg import clocks
from neuraldbg.alerts import Alerts, Delivery, RateLimit
from neuraldbg.control import Breakpoints
from neuraldbg.control.alert_rules import EVENTS, AlertRule, met, rule_of, seen
from neuraldbg.control.hook_triggers import HookAction, HookTrigger
from neuraldbg.control.hooks import Hook
from neuraldbg.errors import TrainingHalted
from neuraldbg.nouns import Fact
from neuraldbg.nouns.alert import RECORDED_FIELDS, SEVERITIES, Alert, severity_of
from neuraldbg.raised import passes
from neuraldbg.unlisted_thread import unlisted_here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from neuraldbg.control import UserCalls
    from neuraldbg.control.hook_moments import Context
    from neuraldbg.nouns import Event, Hypothesis, Layout, Step

RECORDED = 1_000
"""Alerts of one run that its file keeps at most."""
_ALERTS = logging.getLogger("neuraldbg.alerts")


class SessionAlerts:
    """Raises the alerts of a session's training.

    ``steps`` returns the number of steps so far, ``memory`` the bytes of memory in use; ``note`` records facts;
    ``about`` returns what an alert says of the run: its folder, script and rank; ``layout`` returns the layers that are
    known, ``add_hook`` runs a hook, and ``see_each_step`` delivers each step as soon as its values are here.
    """

    def __init__(
        self,
        given: Alerts | Sequence[str] | str | None,
        calls: UserCalls,
        *,
        steps: Callable[[], int],
        memory: Callable[[], float],
        note: Callable[[tuple[Fact, ...]], None],
        about: Callable[[], dict[str, Any]],
        layout: Callable[[], Layout],
        add_hook: Callable[[Hook], None],
        see_each_step: Callable[[], None],
    ) -> None:
        self._asked = given if isinstance(given, Alerts) else Alerts(given if given is None else _several(given))
        self._calls, self._steps, self._memory = calls, steps, memory
        self._note, self._about, self._layout, self._add_hook = note, about, layout, add_hook
        self._see_each_step = see_each_step
        self._points = Breakpoints(calls)
        """The rules that are names of events and causes."""
        self._conditions: list[AlertRule] = []
        """The rules that are conditions on the numbers of a step."""
        self._ruled = False
        """True once a rule is set."""
        self._begun: list[tuple[AlertRule, Event]] = []
        """Events of the current step that a rule is about."""
        self._limit = RateLimit()
        self._lock = threading.RLock()
        self._count = 0
        """Number of alerts that were told."""
        self.newest: deque[Alert] = deque(maxlen=RECORDED)
        """The alerts that were told, the newest."""
        self._unlogged: list[Alert] = []
        """Alerts for Python's logging, which would list our thread: the training's thread logs them."""
        self._delivery: Delivery | None = None
        for rule in self._asked.rules or ():
            self.add(rule_of(rule))

    @property
    def wanted(self) -> bool:
        """True if a rule is set, or a way by which alerts are told is asked for."""
        asked = self._asked
        ways = (asked.file, asked.command, asked.webhook)
        return self._ruled or any(way is not None for way in ways)

    def add(self, rule: AlertRule) -> None:
        """Raise alerts by a rule from now on. Raises UnknownName, which lists the nearest names, and ConfigError."""
        self._see_each_step()  # an alert that comes some steps later is late
        collect = partial(self._collect, rule)
        if rule.condition is not None and rule.of_layers:
            trigger = HookTrigger("after_layer", layers=rule.layers) & HookTrigger.condition(rule.condition)
            hook = Hook(f"alert on {rule.name}", trigger, [HookAction.callback(partial(self._layer, rule))])
            hook.sampled = True
            self._add_hook(hook)
        elif rule.condition is not None:
            self._conditions.append(rule)
        elif rule.name.lower() == EVENTS:
            self._points.on_events(rule.name, lambda event: event.sure, collect)
        else:
            self._add_named(rule, collect)
        self._ruled = True

    def _add_named(self, rule: AlertRule, collect: Callable[[Event], None]) -> None:
        from neuraldbg.explain import meaning  # noqa: PLC0415 (a program without such rules needs none of it)

        asked = meaning(rule.name, self._layout())
        if asked.causes and not asked.kinds:
            self._points.on_causes(rule.name, asked.causes, partial(self._cause, rule))
        elif asked.layer is not None:  # which layer "linear2" is, is known once the model was called
            self._points.on_events(rule.name, lambda event: meaning(rule.name, self._layout()).has(event), collect)
        else:
            self._points.on_events(rule.name, asked.has, collect)

    def start(self) -> None:
        """Prepare the sinks. Their thread starts with the first alert."""
        self._delivery = Delivery(self._asked.sinks())

    def stop(self) -> None:
        """Deliver what waits, for some seconds at most, and say what could not be delivered."""
        if self._delivery is not None:
            self._delivery.close()
        self._tell_news()

    # -- what raises alerts -----------------------------------------------------------------------------------------

    def stepped(self, step: Step, events: Sequence[Event]) -> None:
        """Raise the alerts of a step that has ended, and of its events."""
        if self._unlogged and not unlisted_here():
            self._log()
        if self._delivery is not None and self._delivery.news:
            self._tell_news()
        if events:
            self.told(events, step.index)
        if self._conditions:
            scalars = {**step.scalars, "step": float(step.index)}
            for rule in self._conditions:
                assert rule.condition is not None
                if "memory" in rule.condition.names:
                    scalars.setdefault("memory", self._memory())
                if rule.condition.holds(scalars):
                    words, value = met(rule.condition, scalars, {})
                    self._raise(rule, f"{words} at step {step.index:,}", step=step.index, value=value)

    def told(self, events: Sequence[Event], step: int) -> None:
        """Raise the alerts of events that begin: one for all layers in which events of one kind begin together."""
        self._points.tell(events, step)
        begun, self._begun = _once(self._begun), []
        together: dict[tuple[int, str], list[tuple[AlertRule, Event]]] = {}
        for rule, event in begun:
            together.setdefault((id(rule), event.kind), []).append((rule, event))
        for group in together.values():
            rule, first = group[0]
            words, value = seen([event for _, event in group])
            self._raise(rule, words, step=step, layer=first.layer, value=value, event=first)

    def halted(self, reason: str, step: int) -> None:
        """Raise the alert that the training is stopped, if alerts are asked for."""
        if self.wanted:
            text = f"the training is halted before step {step:,} is applied: {reason}"
            self.tell("halt", "critical", text, step=step, subject="halt")

    def take_due(self) -> bool:
        """Return True if a diagnosis should be made for the sake of a rule about a cause."""
        return self._points.take_due()

    def judge(self, credible: Sequence[Hypothesis], step: int) -> None:
        """Raise the alerts of hypotheses that have become credible."""
        self._points.judge(credible, step)

    def finish(self) -> None:
        """Tell the newest of the alerts that the rate limit holds back."""
        with self._lock:
            rest = self._limit.rest()
        for alert in rest:
            self._tell(alert, None)
        self._log()

    def _collect(self, rule: AlertRule, event: Event) -> None:
        self._begun.append((rule, event))

    def _cause(self, rule: AlertRule, one: Hypothesis) -> None:
        step = max(self._steps() - 1, 0)
        self._raise(rule, one.sentence, step=step, layer=one.layer, value=one.confidence, subject=one.cause)

    def _layer(self, rule: AlertRule, context: Context) -> None:
        assert rule.condition is not None
        words, value = met(rule.condition, context.scalars, context.statistics)
        text = f"{words} in layer '{context.layer}' at step {context.step:,}"
        self._raise(rule, text, step=context.step, layer=context.layer, value=value)

    def _raise(
        self, rule: AlertRule, text: str, *, event: Event | None = None, subject: str = "", **where: Any
    ) -> None:
        subject = event.kind if event is not None else subject
        severity = rule.severity_for(event)
        self.tell(rule.name, severity, text, subject=subject, every=rule.every, action=rule.action, **where)

    # -- telling them -----------------------------------------------------------------------------------------------

    def tell(
        self,
        rule: str,
        severity: object,
        text: str,
        *,
        step: int,
        layer: str | None = None,
        value: float | None = None,
        subject: str = "",
        every: float | None = None,
        action: Callable[[Alert], Any] | None = None,
    ) -> None:
        """Tell an alert, unless the rate limit holds it back. Raises ConfigError for a severity that is none."""
        level = severity_of(severity)
        alert = Alert(level, rule, text, step, layer or None, value, subject, time=clocks.now(), **self._about())
        with self._lock:
            told = self._limit.admit((rule, subject), alert, self._asked.every if every is None else every)
        if told is not None:
            self._tell(told, action)

    def _tell(self, alert: Alert, action: Callable[[Alert], Any] | None) -> None:
        with self._lock:
            number, self._count = self._count, self._count + 1
            self.newest.append(alert)
        if number < RECORDED:
            self._note((_fact(number, alert),))
        listened = _ALERTS.hasHandlers()  # without a handler Python would print it itself, a second time
        if self._asked.terminal or (self._asked.terminal is None and not listened):
            self._say(f"neuraldbg: {alert}")
        if listened:
            self._unlogged.append(alert)
            if not unlisted_here():
                self._log()
        if self._delivery is not None:
            self._delivery.put(alert)
        if action is not None:
            self._calls.call(f"the action of the alert on '{alert.rule}'", alert.step, action, alert)

    def _log(self) -> None:
        while self._unlogged:
            alert = self._unlogged.pop(0)
            more = f" ({alert.held_back:,} more since the last)" if alert.held_back else ""
            level = logging.getLevelName(alert.severity.upper())
            log = partial(_ALERTS.log, level, "%s%s", alert.text, more, extra={"alert": alert})
            self._calls.call("a handler of the logger neuraldbg.alerts", alert.step, log)

    def _say(self, line: str) -> None:
        """Print a line on standard error; the text of a program must not control the terminal."""
        shown = "".join(c if c.isprintable() else "?" for c in line)
        try:
            if self._asked.say is not None:
                self._asked.say(shown)
            elif sys.stderr is not None:
                sys.stderr.write(f"{shown}\n")
                sys.stderr.flush()
        except TrainingHalted:
            raise
        except Exception as error:
            if passes(error):
                raise  # else the stream is closed, or of the program's making

    def _tell_news(self) -> None:
        for sentence in self._delivery.take_news() if self._delivery is not None else ():
            self._say(f"neuraldbg: {sentence}. The training is not affected.")

    @property
    def notes(self) -> list[str]:
        """Return sentences on alerts that were not delivered or not recorded, for the coverage of the run."""
        notes = self._delivery.notes if self._delivery is not None else []
        if self._count > RECORDED:
            notes.append(f"{self._count - RECORDED:,} alerts are not in the run file, which keeps {RECORDED:,}")
        return notes


def _once(begun: Sequence[tuple[AlertRule, Event]]) -> list[tuple[AlertRule, Event]]:
    """Return events with one rule each, that of the highest severity, though with every rule that calls a function."""
    best: dict[int, tuple[AlertRule, Event]] = {}
    for rule, event in begun:
        if rule.action is not None:
            continue
        other = best.setdefault(id(event), (rule, event))[0]
        if SEVERITIES.index(rule.severity_for(event)) > SEVERITIES.index(other.severity_for(event)):
            best[id(event)] = rule, event
    return [(rule, event) for rule, event in begun if rule.action is not None or best[id(event)][0] is rule]


def _fact(number: int, alert: Alert) -> Fact:
    return Fact(alert.step, "alert", {"number": number, **{name: getattr(alert, name) for name in RECORDED_FIELDS}})


def _several(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given
