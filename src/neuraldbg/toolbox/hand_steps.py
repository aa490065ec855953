"""Numbers by hand -> Step -> detectors, recorder, run folder: what a session of the toolbox has in place of capture."""

from __future__ import annotations

import contextlib
import math
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neuraldbg import answers, clocks
from neuraldbg.detect.layer_rows import is_matrix
from neuraldbg.detect.watch import Watch
from neuraldbg.errors import ConfigError
from neuraldbg.nouns import STATS, Layer, Layout, Outcome, RunInfo, Site, Step
from neuraldbg.nouns.accumulators import BLANK, COUNT, NONFINITE, SQUARES, TOTAL, derived
from neuraldbg.ranks import own_rank
from neuraldbg.record import Recorder, RingBuffer, ring_bytes
from neuraldbg.record.outcome import save_beside, versions
from neuraldbg.toolbox.gradient_debugger import MOST_NAMES
from neuraldbg.toolbox.layer_shapes import Shaped, layer_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from neuraldbg.config import Settings
    from neuraldbg.nouns import Diagnosis, Event, Fact, RunRecord

    Floats = npt.NDArray[np.float64]

BACKLOG_S = 0.25
"""Seconds that a step may wait to be recorded: a killed program loses less than the last second."""
FARTHEST = 2**53
"""Largest number of a step, as in a run file."""
BATCH = 64
"""Steps that are judged together: one at a time finds every cache cold."""
MOST_CALLS = 8
"""Tensors of one site that a step keeps apart, as the calls of a layer; the last stands for all beyond."""


class _Closed(NamedTuple):
    """A step that is over."""

    step: int
    time: float
    rows: Mapping[int, Floats]
    """Accumulators by the row of their site, each of shape (WIDTH,)."""
    scalars: dict[str, float]
    layout: Layout


class HandSteps:
    """Collects what is recorded by hand into steps, and passes each step on as an automatic session does.

    What is recorded belongs to the step that is open. It is over when ``begin`` opens another one, or, where nobody
    numbers the steps, when a tensor of it is recorded a second time.

    ``most`` is the number of sites of a kind that a run may have; further ones are counted, and not recorded.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path | None,
        info: RunInfo,
        most: int,
        on_step: Callable[[Step, Sequence[Event]], None],
    ) -> None:
        self._most, self._on_step = most, on_step
        self._watch = Watch(settings.thresholds)
        self._ring = RingBuffer(settings.record.ring, ring_bytes(settings.record))
        self._info = replace(info, started=clocks.now(), versions=versions())
        self._began = self._ended = clocks.perf_counter()
        self._recorder = Recorder(folder, settings.record, self._info, rank=own_rank().rank)
        self.lock = threading.RLock()
        """Held while anything is recorded: several threads of a program may do so."""
        self._number_of_open, self._last = [0], -1
        self._numbered = False
        """True once the program has numbered a step: then nothing else ends one."""
        self._named = False
        """True if the program has begun the open step itself."""
        self._behind: bool | None = None
        """True if the tensors of a step are recorded behind the step as a whole; None before the first of those."""
        self._rows: dict[int, Floats] = {}
        self._scalars: dict[str, float] = {}
        self._own = 0.0
        """Seconds that recording took since the last step ended."""
        self._carried: dict[str, float] = {}
        """Scalars that belong to the next step, and do not open it."""
        self._sites: dict[tuple[str, str, int, str], int] = {}
        """Rows by kind, layer, call and name of a site: one whose dtype changes stays the same."""
        self._order: list[Site] = []
        self._shapes: dict[str, dict[str, Shaped]] = {}
        """Parameters by layer and name."""
        self._layout = Layout()
        self._grown = False
        self._backlog: list[_Closed] = []
        self.at_once = False
        """True if a step is judged as soon as it is over: a hook or an alert may wait for it."""
        self.count = 0
        """Number of steps that are over."""
        self.shifted: tuple[int, int] | None = None
        """The first number of the program that was over already, and that of the step that it was recorded in."""
        self.refused: set[str] = set()
        """Labels of sites beyond the most that a run may have, a thousand of them at most."""

    # -- what is recorded -----------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Number of the step to which a value belongs that is recorded now: the one that is open, or that ended last
        where the program records a whole step first and its tensors behind it.
        """
        return self.number[0]

    @property
    def number(self) -> Sequence[int]:
        """The number of that step as one item: it follows if the program gives the step another number."""
        return [self._last] if self._joins_last() else self._number_of_open

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites that were recorded, each with a row of its own."""
        return tuple(self._order)

    @property
    def recorder(self) -> Recorder:
        """The recorder of the run."""
        return self._recorder

    @property
    def events(self) -> tuple[Event, ...]:
        """The events so far."""
        return self._watch.events

    def put(self, site: Site, row: Floats) -> None:
        """Add the accumulators of a tensor, shape (WIDTH,), to the open step."""
        with self.lock:
            self.turn(site)
            at = self._row_of(site)
            if at is not None and self._joins_last():
                self._join(at, row)
                return
            if at in self._rows and site.kind == "activation":
                at = self._row_of(self._next_call(site))
            if at is None:
                return
            self._rows[at] = row

    def begin_whole(self, step: int | None) -> None:
        """Begin a step that is recorded as a whole. The first one shows whether tensors come before it or behind it."""
        with self.lock:
            if self._behind is None:
                self._behind = not (self._rows or self._scalars)
            if step is not None:
                self.begin(step)
            self._named = True

    def _joins_last(self) -> bool:
        """Return True if a tensor belongs to the step that ended last."""
        return bool(self._behind and self._backlog and not (self._named or self._rows or self._scalars))

    def _join(self, at: int, row: Floats) -> None:
        """Add the accumulators of a tensor to the step that ended last."""
        if self._grown:
            self._layout, self._grown = self._laid_out(), False
        last = self._backlog[-1]
        self._backlog[-1] = last._replace(rows={**last.rows, at: row}, layout=self._layout)

    def turn(self, site: Site) -> None:
        """End the open step if it has a site already, and nobody numbers the steps."""
        with self.lock:
            if not self._numbered and self._sites.get(_key(site)) in self._rows:
                self.end()

    def shaped(self, layer: str, name: str, parameter: Shaped) -> None:
        """Note the shape of a layer's parameter, by which its kind is known."""
        with self.lock:
            known = self._shapes.setdefault(layer, {})
            if known.get(name) != parameter:
                known[name] = parameter
                self._grown = True

    def _next_call(self, site: Site) -> Site:
        """Return the site of the first call of a layer that the open step does not have yet."""
        calls = (replace(site, call=call) for call in range(1, MOST_CALLS))
        return next(
            (one for one in calls if self._sites.get(_key(one)) not in self._rows), replace(site, call=MOST_CALLS - 1)
        )

    def _row_of(self, site: Site) -> int | None:
        """Return the row of a site, a new one for a site that was not recorded before; None if there are too many."""
        known = self._sites.get(_key(site))
        if known is not None:
            return known
        kind = sum(known[0] == site.kind for known in self._sites) if len(self._sites) >= self._most else 0
        if kind >= self._most:
            if len(self.refused) < MOST_NAMES:
                self.refused.add(site.label)
            return None
        self._sites[_key(site)] = row = len(self._sites)
        self._order.append(site)
        self._grown = True
        return row

    def put_scalars(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Add scalars to the open step, by the names of SCALARS or ``metric/NAME``. ``step`` is its number, if the
        program says it.
        """
        with self.lock:
            if "loss" in values and "loss" in self._scalars and not self._numbered:
                self.end()
            if step is not None:
                self._number(step)
            self._scalars.update(values)
            if "loss" in values and not math.isfinite(values["loss"]):
                self._scalars["loss_nonfinite"] = 1.0

    def put_late(self, values: Mapping[str, float]) -> None:
        """Add scalars to the step that is open if it holds anything, else to the one that ended last; before any step
        they belong to the first.
        """
        with self.lock:
            if self._rows or self._scalars:
                self._scalars.update(values)
            elif self._backlog:
                self._backlog[-1].scalars.update(values)
            elif self._last >= 0:  # that step was judged and recorded already
                self._recorder.amend(self._last, values)
            else:
                self._carried.update(values)

    def spent(self, seconds: float) -> None:
        """Count seconds that recording took for the open step, of which they are no part."""
        self._own += seconds

    def put_fact(self, fact: Fact) -> None:
        """Record a fact, which belongs to the open step."""
        with self.lock:
            self._recorder.note((fact,))

    def begin(self, step: int) -> None:
        """Open a step by its number. One that has another number by the program is over; what was recorded without a
        number belongs to this one. Raises ConfigError for one that is over.
        """
        with self.lock:
            self._check(step)
            if self._named and step != self._number_of_open[0]:
                self.end()
            self._number_of_open[0] = step
            self._numbered = self._named = True

    def _number(self, step: int) -> None:
        """Give the open step the number that the program says; one that has another number by it is over."""
        if self._numbered and step != self._number_of_open[0]:
            self.begin(step)
            return
        if step <= self._last:  # steps that end by themselves are no steps of an optimizer, such as micro-batches
            self.shifted = self.shifted or (step, self._number_of_open[0])
            return
        if self._named and step != self._number_of_open[0]:
            self.end()
        self._number_of_open[0], self._named = step, True

    def _check(self, step: int) -> None:
        if step > FARTHEST:
            raise ConfigError(f"step: give a number up to {FARTHEST:,}, not {step:,}")
        if step <= self._last:
            raise ConfigError(
                f"step {step} is over: step {self._last} was recorded already. Count the steps of the whole training, "
                "over all epochs"
            )

    def end(self) -> None:
        """End the open step, if anything of it was recorded."""
        with self.lock:
            if not (self._rows or self._scalars):
                return
            now = clocks.perf_counter()
            scalars = {**self._carried, **self._scalars, "duration": now - self._ended, "overhead": self._own}
            if self._grown:
                self._layout, self._grown = self._laid_out(), False
            self._backlog.append(_Closed(self._number_of_open[0], now - self._began, self._rows, scalars, self._layout))
            self._rows, self._scalars, self._carried, self._ended, self._own = {}, {}, {}, now, 0.0
            self._named = False
            self._last = self._number_of_open[0]
            self._number_of_open = [self._last + 1]
            self.count += 1
            waited = now - self._began - self._backlog[0].time
            if self.at_once:
                self.deliver()
            elif len(self._backlog) > BATCH or waited > BACKLOG_S:
                self.deliver(keep=1)  # what comes late still joins the newest

    def _derive(self, closed: _Closed) -> None:
        """Add the scalars of a step that follow from its tensors."""
        for name, value in (("grad_norm", self._norm(closed)), ("update_ratio", self._ratio(closed))):
            if value is not None:
                closed.scalars.setdefault(name, value)

    @staticmethod
    def _norm(closed: _Closed) -> float | None:
        """Return the L2 norm of a step's gradients of parameters: NaN if a value is not finite, None without any."""
        rows = map(closed.rows.get, closed.layout.rows("param_grad"))
        found = [row for row in rows if row is not None and row[COUNT] > 0]
        if not found:
            return None
        if any(row[NONFINITE] for row in found):
            return math.nan
        return math.sqrt(sum(row[SQUARES] * row[TOTAL] / row[COUNT] for row in found))

    def _ratio(self, closed: _Closed) -> float | None:
        """Return the median over weight matrices of norm(update) / norm(parameter); None without any."""
        found = []
        for at in closed.layout.rows("update"):
            site = closed.layout.sites[at]
            update, weight = closed.rows.get(at), closed.rows.get(self._sites.get(("param", *_key(site)[1:]), -1))
            if update is None or weight is None or not is_matrix(closed.layout, site):
                continue
            if weight[SQUARES] > 0 and update[COUNT] > 0 and not update[NONFINITE] and not weight[NONFINITE]:
                found.append(math.sqrt(update[SQUARES] / update[COUNT] / (weight[SQUARES] / weight[COUNT])))
        return float(np.median(found)) if found else None

    def _laid_out(self) -> Layout:
        """Return the layers and the sites so far. A layer is one of the order in which it was first recorded."""
        params: dict[str, list[str]] = {}
        for site in self._order:
            named = params.setdefault(site.module, [])
            if site.kind in ("param", "param_grad", "update") and site.name not in named:
                named.append(site.name)
        layers = []
        for path, of in params.items():
            kind, settings = layer_type(self._shapes.get(path, {}))
            layers.append(Layer(path, kind, "", leaf=True, params=tuple(of), settings=settings))
        return Layout(tuple(layers), tuple(self._order), called=frozenset(params))

    # -- what becomes of it ---------------------------------------------------------------------------------------

    def deliver(self, keep: int = 0) -> None:
        """Judge and record the steps that are over, but for the newest ``keep``."""
        with self.lock:
            count = len(self._backlog) - keep
            backlog, self._backlog = self._backlog[:count], self._backlog[count:]
            begun = 0
            try:
                for alike in _alike(backlog):
                    layout = alike[0].layout
                    for closed in alike:
                        self._derive(closed)
                    tables = _tables(alike)
                    steps = [_step(closed, table.copy()) for closed, table in zip(alike, tables, strict=True)]
                    if not steps[0].light:
                        self._watch.expect(steps, layout, tables)
                    for step in steps:
                        begun += 1
                        self._pass_on(step, layout)
            finally:  # a hook may halt the training: the steps behind it are still to be judged
                self._backlog[:0] = backlog[begun:]

    def _pass_on(self, step: Step, layout: Layout) -> None:
        events = self._watch.observe(step, layout)
        self._recorder.put(step, layout, events)
        grads, acts = ({}, {}) if step.light else (answers.norms(step, layout, kind) for kind in _NORMS)
        self._ring.add(step.index, grads, acts, step.loss)
        self._on_step(step, events)

    def record(self, coverage: Mapping[str, Any], outcome: Outcome) -> RunRecord:
        """Return the record of the steps that are over."""
        with self.lock:
            self.deliver()
            self._info = replace(self._info, coverage=dict(coverage), outcome=outcome)
            self._recorder.tell(self._watch.events)
            self._recorder.update_info(self._info)
            return self._recorder.record()

    def note(self, facts: Iterable[Fact]) -> None:
        """Record facts that belong to no single step."""
        self._recorder.note(tuple(facts))

    def finish(self) -> None:
        """End the open step."""
        self.end()

    def abandon(self) -> None:
        """Save what there is: the session was forgotten, or the program ended without ``stop``."""
        with self.lock, contextlib.suppress(ConfigError):
            self.finish()
            self.record(self._info.coverage or {"by_hand": 1}, Outcome("completed"))
        self._recorder.close()

    def close(self, diagnosis: Diagnosis) -> None:
        """Finish the run file, and write the diagnosis beside it."""
        self._recorder.close()
        file = self._recorder.path
        if file is not None:
            try:
                save_beside(file, diagnosis, self._ring)
            except OSError as error:
                self._recorder.trouble(f"the diagnosis cannot be written to {file.parent}: {error}")


_NORMS = ("param_grad", "activation")


def _key(site: Site) -> tuple[str, str, int, str]:
    return site.kind, site.module, site.call, site.name


def _alike(backlog: list[_Closed]) -> Iterable[list[_Closed]]:
    """Yield runs of steps of one layout that all have tables, or all have none."""
    alike: list[_Closed] = []
    for closed in backlog:
        if alike and (closed.layout is not alike[0].layout or bool(closed.rows) != bool(alike[0].rows)):
            yield alike
            alike = []
        alike.append(closed)
    if alike:
        yield alike


def _tables(alike: Sequence[_Closed]) -> Floats:
    """Return the tables of steps of one layout, shape (steps, sites, len(STATS)), without sites for light ones."""
    if not alike[0].rows:
        return np.zeros((len(alike), 0, len(STATS)))
    tables = np.empty((len(alike), len(alike[0].layout.sites), len(STATS)))
    tables[:] = derived(BLANK)  # most sites of a run may be read in a few steps only
    found = derived(np.array([row for closed in alike for row in closed.rows.values()]))
    start = 0
    for table, closed in zip(tables, alike, strict=True):
        table[list(closed.rows)] = found[start : start + len(closed.rows)]
        start += len(closed.rows)
    return tables


def _step(closed: _Closed, table: Floats) -> Step:
    return Step(closed.step, 0, closed.time, table, closed.scalars)
