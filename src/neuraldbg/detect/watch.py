"""All detectors over the steps of a run: a step in, new and lasting events out, and a bounded list of all events."""

from __future__ import annotations

import difflib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from neuraldbg.arguments import mapping
from neuraldbg.config import validated
from neuraldbg.detect import DETECTORS
from neuraldbg.detect.block import Block
from neuraldbg.detect.layer_rows import FAR, flow
from neuraldbg.detect.lookahead import Ahead
from neuraldbg.detect.readings import Readings
from neuraldbg.errors import ConfigError
from neuraldbg.raised import passes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from neuraldbg.detect.detector import Detector
    from neuraldbg.nouns import Event, Layout, Step

FIRST = 48
"""Earliest events of one kind, which are always kept."""
LATEST = 16
"""Newest events of one kind that are kept beyond those."""
SEVERAL = 4
"""Steps from which judging them together takes less time than one by one."""


class Watch:
    """Runs every detector over the steps of a run.

    ``overrides`` holds thresholds by detector name. Raises ConfigError for a detector or a threshold that does not
    exist, with the nearest names, and for a value out of range.
    """

    def __init__(self, overrides: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        overrides = overrides or {}
        names = {cls.name: cls for cls in DETECTORS}
        for name, group in overrides.items():
            mapping(group, f"thresholds of {name}")
            if name not in names:
                near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or sorted(names)
                msg = f"no detector is called {name!r}. Did you mean: {', '.join(near)}?"
                raise ConfigError(msg)
        self._overrides = overrides
        self._kept: dict[str, tuple[dict[Any, Event], OrderedDict[Any, Event]]] = {}
        self._dropped: dict[str, int] = {}
        self._layout: Layout | None = None
        self._read = -1
        self._begin()

    def _begin(self) -> None:
        """Create the detectors, without any state of the run."""
        self.detectors: tuple[Detector, ...] = tuple(
            _made(cls, self._overrides[cls.name]) if cls.name in self._overrides else cls() for cls in DETECTORS
        )
        self._readings = Readings()
        for detector in self.detectors:
            if hasattr(detector, "readings"):
                detector.readings = self._readings
        self._light = tuple(detector.observe for detector in self.detectors if detector.light)
        self._ahead: Ahead | None = None

    @property
    def needs(self) -> frozenset[str]:
        """Kinds of sites that the detectors read."""
        return frozenset().union(*(detector.needs for detector in self.detectors))

    def expect(self, steps: Sequence[Step], layout: Layout, tables: npt.NDArray[np.float64]) -> None:
        """Announce the full steps that will be observed next, so that they can be judged together.

        ``tables`` holds their tables, shape (steps, sites, len(STATS)). Each must still be passed to ``observe``, which
        returns the same events as without this call. The arrays are released with the last step.
        """
        stream, count = steps[0].stream, 0
        while count < len(steps) and steps[count].stream == stream and steps[count].applied:
            count += 1
        self._ahead = None
        if count >= SEVERAL and tables.shape[1]:
            self._ahead = Ahead(Block(steps[:count], layout, tables[:count]), self.detectors)

    def observe(self, step: Step, layout: Layout) -> list[Event]:
        """Judge one step. Return the events that began or were updated."""
        try:
            return self._observe(step, layout)
        except BaseException as error:
            if passes(error):  # an exception of the program's, such as a time limit, has interrupted a detector
                self._begin()
            raise

    def _observe(self, step: Step, layout: Layout) -> list[Event]:
        self._layout = layout
        events: list[Event] = []
        if not len(step.table):
            self._readings.light(step)
            for observe in self._light:
                if found := observe(step, layout):
                    events += found
        else:
            self._read = step.index
            self._readings.progress.observe(step)  # the detectors that call this may have passed over the step
            for detector in self._due(step):
                if found := detector.observe(step, layout):
                    events += found
        for event in events:
            self.keep(event)
        return events

    def _due(self, step: Step) -> Sequence[Detector]:
        """Return the detectors that have not passed over this step."""
        ahead = self._ahead
        if ahead is None or ahead.next is not step:
            return self.detectors
        due = ahead.due(self.detectors)
        if ahead.next is None:
            self._ahead = None
        return due

    @property
    def read(self) -> int:
        """The last step whose sites were read; -1 if there is none."""
        return self._read

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of the run so far, by first step and then by data flow, each with its latest version."""
        for detector in self.detectors:
            for event in detector.ongoing():
                self._refresh(event)
        position = flow(self._layout) if self._layout is not None else {}
        merged = [event for first, latest in self._kept.values() for kept in (first, latest) for event in kept.values()]
        return tuple(
            sorted(merged, key=lambda e: (e.first_step, *position.get(e.layer or "", (FAR, 0)), e.kind, e.site))
        )

    @property
    def dropped(self) -> Mapping[str, int]:
        """Number of events of each kind that were dropped to bound the list; the earliest are always kept."""
        return dict(self._dropped)

    def keep(self, event: Event) -> None:
        """Add an event, or a newer version of one."""
        first, latest = self._kept.setdefault(event.kind, ({}, OrderedDict()))
        key = event.key
        if key in first or len(first) < FIRST:
            first[key] = event
            return
        latest[key] = event
        latest.move_to_end(key)
        if len(latest) > LATEST:
            latest.popitem(last=False)
            self._dropped[event.kind] = self._dropped.get(event.kind, 0) + 1

    def _refresh(self, event: Event) -> None:
        for kept in self._kept.get(event.kind, ()):
            if event.key in kept:
                kept[event.key] = event


def _made(cls: type[Detector], values: Mapping[str, Any]) -> Detector:
    """Build a detector with thresholds that differ from its defaults."""
    thresholds = validated(type(cls().thresholds), dict(values), f"threshold of {cls.name}")
    return cls(thresholds)  # type: ignore[call-arg]
