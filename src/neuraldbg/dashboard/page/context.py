"""What a tab sees: a moment of a run and what the address asks for, made to fit each other.

A layer or step that the address does not name is taken from the diagnosis: the guilty layer, and the step at which it
was hit. One that the run does not have is said in ``problems`` and left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from neuraldbg.dashboard.page.address import State, written
from neuraldbg.errors import NeuralDbgError, UnknownLayer
from neuraldbg.layer_alias import resolve
from neuraldbg.nouns import SCALARS, STATS
from neuraldbg.show.format.safe_text import plain
from neuraldbg.show.views import view
from neuraldbg.show.views.moments import failure_of, guilty_of
from neuraldbg.show.views.view import Choice

if TYPE_CHECKING:
    from typing import Any

    from neuraldbg.dashboard.feed import Entry, Moment
    from neuraldbg.dashboard.page.cache import Newest
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.nouns.comparison import Comparison
    from neuraldbg.show.forms import View

KINDS = ("activation", "output_grad", "param", "param_grad", "update", "input", "op")


@dataclass(frozen=True)
class Beside:
    """The run that another is compared with."""

    entry: Entry
    moment: Moment
    comparison: Comparison | None
    """None while it is worked out."""
    key: str
    """A name of the comparison that is equal only where it is."""


@dataclass(frozen=True)
class Scene:
    """A run as it is looked at."""

    state: State
    """What the address asks for, without what this run does not have."""
    entry: Entry
    entries: tuple[Entry, ...]
    moment: Moment
    theme: str
    """``light`` or ``dark``."""
    points: int
    """A line has at most so many points."""
    layer: str | None
    """The layer to look at, None where neither address nor diagnosis names one."""
    step: int | None
    problems: tuple[str, ...]
    views: Newest[View] = field(repr=False)
    figures: Newest[dict[str, Any]] = field(repr=False)
    beside: Beside | None = None
    """What the tab ``compare`` looks at; None on other tabs, and where no run was chosen."""

    @property
    def run(self) -> RunRecord:
        """The record."""
        return self.moment.record

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis."""
        return self.moment.diagnosis

    def view(self, name: str, **choice: Any) -> View:
        """Compute a view over the range of steps that is zoomed into, or return it as it was computed."""
        asked = Choice(**{"first": self.state.first, "last": self.state.last, "step": self.state.step, **choice})
        key = (self.entry.key, self.moment.version, name, asked)
        return self.views.get(key, lambda: view(name, self.run, self.diagnosis, asked))

    def link(self, **change: Any) -> str:
        """Return the address that differs from this one in some fields."""
        return written(replace(self.state, **change))


def fitting(state: State, moment: Moment) -> tuple[State, str | None, int | None, tuple[str, ...]]:
    """Return the state without what the run does not have, the layer and the step to look at, and what was left out."""
    run, diagnosis, problems = moment.record, moment.diagnosis, []
    if state.layer is not None and run.layout.layers:
        try:
            state = replace(state, layer=resolve(run.layout, state.layer))
        except UnknownLayer as error:
            problems.append(f"In the address, {plain(str(error))}")
            state = replace(state, layer=None)
    for name in ("step", "first"):
        step = getattr(state, name)
        if step is not None and step >= run.steps > 0:
            problems.append(f"The address says {name}={step:,}: this run has steps 0 to {run.steps - 1:,}.")
            state = replace(state, **{name: None})
    for name, known in (("stat", ("norm", *STATS)), ("kind", KINDS), ("scalar", tuple(SCALARS))):
        value = getattr(state, name)
        if value is not None and value not in known:
            problems.append(f"The address says {name}={plain(value[:60])!r}: {', '.join(known)} are known.")
            state = replace(state, **{name: None})
    layer, step = suspect(run, diagnosis)
    return (
        state,
        layer if state.layer is None else state.layer,
        step if state.step is None else state.step,
        tuple(problems),
    )


def suspect(run: RunRecord, diagnosis: Diagnosis) -> tuple[str | None, int | None]:
    """Return the layer and the step to look at first: the guilty layer when it was hit, or else the failure."""
    guilty, _ = guilty_of(diagnosis, {site.module for site in run.layout.sites})
    layer = guilty[0] if guilty else None
    hit = [e.first_step for e in diagnosis.events if e.layer is not None and e.layer == layer]
    hit += [h.step for h in diagnosis.hypotheses[:1] if h.step is not None and h.layer is not None and h.layer == layer]
    return layer, min(hit) if hit else failure_of(run, diagnosis)[0]


def said(error: NeuralDbgError) -> str:
    """Return an error on purpose as a sentence for a pane."""
    return plain(str(error))
