"""The data that a tab draws from: a moment of a run, and the selection of the address as far as the run has it.

A layer or step that the address does not name is taken from the diagnosis: the layer of the first cause, and its first
step with an event. One that the run does not have is ignored, and reported in ``problems``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from neuraldbg.dashboard.page.address import State, written
from neuraldbg.errors import NeuralDbgError, UnknownLayer
from neuraldbg.layer_alias import resolve
from neuraldbg.nouns import METRIC, SCALARS, STATS, metric_names
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

WEIGHTS = ("0.6", "0.9", "0.99")
"""Weights by which curves can be smoothed."""
KINDS = ("activation", "output_grad", "param", "param_grad", "update", "input", "op")


@dataclass(frozen=True)
class Beside:
    """The second run of the tab ``compare``, with the comparison of both."""

    entry: Entry
    moment: Moment
    comparison: Comparison | None
    """Comparison of both runs. None while it is computed."""
    key: str
    """Signature of the comparison: equal for equal comparisons."""


@dataclass(frozen=True)
class Scene:
    """A run with the selection of the address, the theme and the caches, as a tab draws it."""

    state: State
    """Selection in the address, without layers, steps and names that this run does not have."""
    entry: Entry
    """Entry of the run."""
    entries: tuple[Entry, ...]
    """Entries of all runs."""
    moment: Moment
    theme: str
    """``light`` or ``dark``."""
    points: int
    """Points of a line at most."""
    layer: str | None
    """Path of the selected layer. None if neither address nor diagnosis names one."""
    step: int | None
    """Number of the selected step. None if neither address nor diagnosis names one."""
    problems: tuple[str, ...]
    """Sentences about ignored parts of the address."""
    views: Newest[View] = field(repr=False)
    """Cache of views."""
    figures: Newest[dict[str, Any]] = field(repr=False)
    """Cache of figures."""
    beside: Beside | None = None
    """Second run of the tab ``compare``. None on other tabs, and if no run was chosen."""

    @property
    def weight(self) -> float:
        """Weight by which curves are smoothed; 0 for the values as they were measured."""
        return float(self.state.smooth or 0)

    @property
    def run(self) -> RunRecord:
        """Record of the run."""
        return self.moment.record

    @property
    def diagnosis(self) -> Diagnosis:
        """Diagnosis of the run."""
        return self.moment.diagnosis

    def view(self, name: str, **choice: Any) -> View:
        """Return a view over the range of steps that is zoomed into, from the cache if it is there."""
        asked = Choice(**{"first": self.state.first, "last": self.state.last, "step": self.state.step, **choice})
        key = (self.entry.key, self.moment.version, name, asked)
        return self.views.get(key, lambda: view(name, self.run, self.diagnosis, asked))

    def link(self, **change: Any) -> str:
        """Return the query string of the address with some fields changed."""
        return written(replace(self.state, **change))


def fitting(state: State, moment: Moment) -> tuple[State, str | None, int | None, tuple[str, ...]]:
    """Return the state without layers, steps and names that the run does not have, the selected layer and step, and
    sentences about ignored parts.
    """
    run, diagnosis, problems = moment.record, moment.diagnosis, []
    # An address may be of another run, or written by hand: unknown values are dropped and reported.
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
    scalars = (*SCALARS, *(f"{METRIC}{name}" for name in metric_names(run.history.scalars)))
    for name, known in (("stat", ("norm", *STATS)), ("kind", KINDS), ("scalar", scalars), ("smooth", WEIGHTS)):
        value = getattr(state, name)
        if value is not None and value not in known:
            problems.append(f"The address says {name}={plain(value[:60])!r}: {plain(', '.join(known))} are known.")
            state = replace(state, **{name: None})
    layer, step = suspect(run, diagnosis)
    return (
        state,
        layer if state.layer is None else state.layer,
        step if state.step is None else state.step,
        tuple(problems),
    )


def suspect(run: RunRecord, diagnosis: Diagnosis) -> tuple[str | None, int | None]:
    """Return the layer and the step to show first: the guilty layer at its first event, or else the failure's step."""
    guilty, _ = guilty_of(diagnosis, {site.module for site in run.layout.sites})
    layer = guilty[0] if guilty else None
    hit = [e.first_step for e in diagnosis.effects if e.layer is not None and e.layer == layer]
    hit += [h.step for h in diagnosis.hypotheses[:1] if h.step is not None and h.layer is not None and h.layer == layer]
    return layer, min(hit) if hit else failure_of(run, diagnosis)[0]


def said(error: NeuralDbgError) -> str:
    """Return the message of one of our errors as a sentence for a pane."""
    return plain(str(error))
