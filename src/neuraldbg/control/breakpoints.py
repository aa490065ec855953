"""Breakpoints: actions that are called when an event begins, or a cause becomes credible. Events in, calls out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neuraldbg.control.user_calls import UserCalls
    from neuraldbg.nouns import Event, Hypothesis

    Action = Callable[[Any], None]
    Concerns = Callable[[Event], bool]

FIRST = 4
"""First step at which a cause is due without any event; then at each doubling of the steps."""


class Breakpoints:
    """The breakpoints of one session. Each is called once for each episode of an event, and once for each cause."""

    def __init__(self, calls: UserCalls) -> None:
        self.calls = calls
        self._on_events: list[tuple[str, Concerns, Action]] = []
        self._on_causes: list[tuple[str, frozenset[str], Action]] = []
        self._begun: dict[tuple[str, str, str], tuple[int, int]] = {}
        """First and last step, as far as known, of the newest episode of each kind, layer and site."""
        self._kinds: set[str] = set()
        """Kinds of events that have begun."""
        self._named: set[str] = set()
        """Causes that were credible before."""
        self._due = False
        self._next = FIRST

    def on_events(self, name: str, concerns: Concerns, action: Action) -> None:
        """Call ``action`` with each event that begins from now on and that ``concerns`` is True for. ``name`` is what
        the user asked for.
        """
        self._on_events.append((name, concerns, action))

    def on_causes(self, name: str, causes: Iterable[str], action: Action) -> None:
        """Call ``action`` with the hypothesis once one of these causes is credible."""
        self._on_causes.append((name, frozenset(causes), action))

    def drop(self, action: Action) -> None:
        """Forget the breakpoints that call an action."""
        self._on_events = [one for one in self._on_events if one[2] is not action]
        self._on_causes = [one for one in self._on_causes if one[2] is not action]

    def named(self, causes: Iterable[str]) -> bool:
        """Return True if all of these causes were credible before: a breakpoint on them would never be called."""
        return self._named.issuperset(causes)

    def tell(self, events: Iterable[Event], step: int) -> None:
        """Call the actions of the events that begin. Causes are due when a kind of event begins for the first time, and
        whenever the steps have doubled: a diagnosis may take tenths of a second.
        """
        fresh = self._fresh(events)
        kinds = {event.kind for event in fresh} - self._kinds
        self._kinds |= kinds
        if self._on_causes and (kinds or step >= self._next):
            self._due, self._next = True, max(FIRST, 2 * step)
        known = tuple(self._on_events)  # an action may add a breakpoint, which is for events that begin later
        for event in fresh:
            for name, concerns, action in known:
                if concerns(event):
                    self._call(name, step, action, event)

    def take_due(self) -> bool:
        """Return True if a diagnosis should be made for the sake of causes that were not credible so far."""
        due, self._due = self._due, False
        return due and self.wanted

    @property
    def wanted(self) -> bool:
        """True if a cause has a breakpoint and was not credible so far."""
        return any(causes - self._named for _, causes, _ in self._on_causes)

    def judge(self, hypotheses: Iterable[Hypothesis], step: int) -> None:
        """Call the actions of credible hypotheses that were not credible before."""
        known = tuple(self._on_causes)
        for one in hypotheses:
            if one.cause in self._named:
                continue
            self._named.add(one.cause)
            for name, causes, action in known:
                if one.cause in causes:
                    self._call(name, step, action, one)

    def _call(self, name: str, step: int, action: Action, what: Event | Hypothesis) -> None:
        self.calls.call(f"the action of the breakpoint on {name!r}", step, action, what)

    def _fresh(self, events: Iterable[Event]) -> list[Event]:
        """Return the events that have begun since the last call. An event that lasts comes again, and one that is told
        on stronger grounds may have an earlier first step: what overlaps is one episode.
        """
        found = []
        for event in events:
            kind, layer, site, _ = event.key
            first, last = self._begun.get((kind, layer, site), (0, -1))
            if event.first_step > last:
                found.append(event)
                first = event.first_step
            self._begun[kind, layer, site] = (min(first, event.first_step), max(last, event.last_step))
        return found
