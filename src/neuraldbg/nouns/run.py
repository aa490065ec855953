"""The record of a run as a plain value: all data that a diagnosis needs, from a live session or from a file."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from neuraldbg.nouns.curve import curve_svg
from neuraldbg.nouns.fact import IDENTITY
from neuraldbg.nouns.frozen import frozen
from neuraldbg.nouns.histogram import StepHistograms, course_of
from neuraldbg.nouns.html import div, number_text, safe, shown
from neuraldbg.nouns.layout import Layout
from neuraldbg.nouns.site import column
from neuraldbg.nouns.step import ends_of, nonfinite_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from neuraldbg.nouns.event import Event
    from neuraldbg.nouns.fact import Fact
    from neuraldbg.nouns.facts.known import Known
    from neuraldbg.nouns.histogram import Histograms

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

K = TypeVar("K", bound="Known")
Reduce = Literal["min", "mean", "max"]

RUN_SCHEMA = "neuraldbg.run/1"
"""Schema of the whole record as one JSON document: written by the export stage, read by the record stage."""
# 1  2026-11  first version
OUTCOMES = ("completed", "raised", "interrupted", "halted", "running")
"""Kinds of outcomes; ``running`` has not ended."""


@frozen(kw_only=False)
class Outcome:
    """The end of the watched program: completed, by an exception, interrupted or halted."""

    kind: str = "running"
    """``completed``, ``raised``, ``interrupted``, ``halted`` or ``running``; a killed program stays ``running``."""
    message: str = ""
    """For ``raised`` the exception as Python prints it, for ``halted`` the reason."""
    where: str = ""
    """File and line of the user's own code for ``raised``, and of what a signal interrupted; "" if there is none."""
    text: str = ""
    """Source of that line without its indentation; "" if it is not available."""


@frozen(kw_only=False)
class RunInfo:
    """The program, its environment, and the coverage: how well the program could be observed."""

    script: str = ""
    """Path of the script under ``neuraldbg run``; "" for a session of a program's own."""
    argv: tuple[str, ...] = ()
    """Command line of the script, its own name first."""
    started: float = 0.0
    """Time at which the run began, in seconds since 1970 (Unix time)."""
    models: tuple[str, ...] = ()
    """Names of the models, in order of first call."""
    optimizers: tuple[str, ...] = ()
    """Class names of the optimizers, in order of first step."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of python, torch and neuraldbg."""
    device: str = "cpu"
    """Device of the first parameter of the model: ``cpu``, ``cuda:0``, ..."""
    coverage: Mapping[str, Any] = field(default_factory=dict)
    """Coverage: {"layers": int, "seen": int, "never_fired": [path], "notes": [str], "errors": int, ...}.
    "without_grad" are layers that were only called without gradients, where nothing is read.

    "by_hand" is 1 if the numbers were recorded by hand, and nothing of the program was seen.

    "coarse" is the number of steps that are recorded as parts of bins, or not at all, because the recorder did not keep
    up.
    """
    outcome: Outcome = field(default_factory=Outcome)
    """End of the program."""
    seed: int | None = None
    """Seed of torch's generator. Always None so far: it is not read yet."""
    note: str = ""
    """Remark of whoever started the run, which every picture and page of it shows, such as "made-up data"."""
    job: Mapping[str, Any] = field(default_factory=dict)
    """Place of the process in a job of several: {"rank": int, "world": int, "local_rank": int, "local_world": int,
    "id": str, "restart": int}, as the launcher gives it; empty for a single process."""
    ended: float = 0.0
    """Time at which the run ended, as ``started``; 0 if it has not, or was killed."""


@frozen(kw_only=False)
class Series:
    """The values of one statistic over steps. In thinned parts of the run one value covers ``width`` steps.

    >>> series = run.scalar("loss")
    >>> print(len(series), series.steps[0], series.width[0])
    40 0 1
    """

    steps: Ints
    """First step of each value, shape (T,)."""
    values: Floats
    """Values, shape (T,)."""
    width: Ints
    """Number of steps of each value, shape (T,); 1 is full resolution."""

    @shown
    def _repr_html_(self) -> str:
        """Render the range and the curve of the values as HTML for a notebook."""
        values = np.asarray(self.values, np.float64)
        if not len(values):
            return div("a series without values")
        finite = np.isfinite(values)
        lost = int((~finite).sum())
        told = [f"{len(values):,} values, steps {int(self.steps[0]):,} to {int(self.steps[-1]):,}"]
        if finite.any():
            told.append(f"{number_text(values[finite].min())} to {number_text(values[finite].max())}")
            told.append(f"last {number_text(values[-1])}")
        told += [f"{lost:,} NaN or infinite"] * bool(lost)
        return div(f"{curve_svg(np.asarray(self.steps, np.float64), values)}<div>{safe('; '.join(told))}</div>")

    def __len__(self) -> int:
        return len(self.steps)

    def finite(self) -> Series:
        """Return the series of the finite values.

        >>> len(run.scalar("loss").finite()) < len(run.scalar("loss"))
        True
        """
        keep = np.isfinite(self.values)
        return Series(self.steps[keep], self.values[keep], self.width[keep])

    def between(self, first: int, last: int) -> Series:
        """Return the series of the steps from ``first`` to ``last``, both included.

        >>> run.scalar("loss").between(3, 5).steps.tolist()
        [3, 4, 5]
        """
        keep = (self.steps >= first) & (self.steps <= last)
        return Series(self.steps[keep], self.values[keep], self.width[keep])

    def at(self, step: int) -> float:
        """Return the value of a step; NaN if there is none.

        >>> run.scalar("lr").at(3)
        0.1
        """
        hit = np.flatnonzero((self.steps <= step) & (step < self.steps + self.width))
        return float(self.values[hit[-1]]) if len(hit) else float("nan")


class Slab(NamedTuple):
    """The tables of some rows of a history, with the indices of these rows."""

    rows: npt.NDArray[np.intp]
    """Indices of the rows of the history, shape (R,), ascending."""
    mean: npt.NDArray[np.float32]
    """Tables as in ``History.mean``, shape (R, sites, len(STATS))."""
    low: npt.NDArray[np.float32]
    """Tables as in ``History.low``, shape (R, sites, len(STATS))."""
    high: npt.NDArray[np.float32]
    """Tables as in ``History.high``, shape (R, sites, len(STATS))."""


_SLAB = 64
"""Rows of time in one slab."""


@frozen(kw_only=False)
class History:
    """The tables and scalars of all steps: T rows of time, oldest first, at full resolution where ``width`` is 1."""

    steps: Ints
    """First step of each row, shape (T,)."""
    width: Ints
    """Number of steps of each row, shape (T,)."""
    time: Floats
    """Seconds since the run began, shape (T,)."""
    stream: Ints
    """Number of the optimizer that stepped, shape (T,); of a thinned row that of its first step."""
    applied: npt.NDArray[np.bool_]
    """True if all steps of the row were applied, shape (T,)."""
    mean: npt.NDArray[np.float32]
    """Table of each row, shape (T, sites, len(STATS)), averaged over thinned steps (``nonfinite`` is summed)."""
    low: npt.NDArray[np.float32]
    """Minima over thinned steps, shape (T, sites, len(STATS)); equal to ``mean`` at full resolution."""
    high: npt.NDArray[np.float32]
    """Maxima over thinned steps, shape (T, sites, len(STATS)); equal to ``mean`` at full resolution."""
    scalars: Mapping[str, Floats]
    """Values by scalar name, shape (T,), averaged over thinned steps; NaN if not measured. Thinned rows also have the
    extremes of the scalars in RANGED, under the names of ``ends_of``."""

    def __len__(self) -> int:
        return len(self.steps)

    def table(self, reduce: Reduce = "mean") -> npt.NDArray[np.float32]:
        """Return ``mean``, ``low`` or ``high``, shape (T, sites, len(STATS)), by the reduction of thinned steps.

        >>> run.history.table("max").shape == run.history.mean.shape
        True
        """
        if reduce == "mean":
            return self.mean
        return self.low if reduce == "min" else self.high

    @property
    def sites(self) -> int:
        """Number of sites in the tables."""
        return int(self.mean.shape[1])

    @cached_property
    def read(self) -> npt.NDArray[np.bool_]:
        """True for rows in which sites were read, shape (T,); in light steps they are not."""
        seen: npt.NDArray[np.bool_] = np.any(self.high[:, :, column("count") :][:, :, :1] > 0, axis=(1, 2))
        return seen

    def row(self, at: int, reduce: Reduce = "mean") -> npt.NDArray[np.float32]:
        """Return the table of one row of time, shape (sites, len(STATS)). ``at`` is an index of ``steps``, no step.

        >>> run.history.row(0).shape == run.history.mean.shape[1:]
        True
        """
        table: npt.NDArray[np.float32] = self.table(reduce)[at]
        return table

    def slabs(self) -> Iterator[Slab]:
        """Yield all tables that were read, a few at a time, in the order of time."""
        read = np.flatnonzero(self.read)
        for first in range(0, len(read), _SLAB):
            at = read[first : first + _SLAB]
            yield Slab(at, self.mean[at], self.low[at], self.high[at])

    def stat(self, rows: int | list[int] | tuple[int, ...], name: str, reduce: Reduce = "mean") -> Floats:
        """Return one statistic of one site, shape (T,), or of several, shape (T, len(rows)).

        NaN where the site was not read. Raises KeyError for an unknown statistic.

        >>> run.history.stat([0, 1], "rms").shape
        (40, 2)
        """
        picked = self.table(reduce)[:, rows if isinstance(rows, int) else list(rows), column(name)]
        return np.asarray(picked, dtype=np.float64)


@frozen(kw_only=False)
class RunRecord:
    """The record of a run: info with outcome and coverage, layout, history, facts, events and histograms.

    >>> record = dbg.record()
    >>> rows = record.layout.rows("param_grad", "0", "weight")
    >>> record.series(rows[0], "rms").steps[:3].tolist()
    [0, 1, 2]
    """

    info: RunInfo = field(default_factory=RunInfo)
    """Program, environment, coverage and outcome."""
    layout: Layout = field(default_factory=Layout)
    """Layers, sites and the data flow between layers."""
    history: History = field(default_factory=lambda: empty_history())  # noqa: PLW0108 (defined below)
    """Tables and scalars of all steps."""
    facts: tuple[Fact, ...] = ()
    """Facts in step order."""
    events: tuple[Event, ...] = ()
    """Events in order of first step."""
    steps: int = 0
    """Number of optimizer steps in the whole run."""
    histograms: tuple[StepHistograms, ...] = ()
    """Histograms of a few steps, in step order: the first steps, then ever farther apart."""

    def __repr__(self) -> str:
        layers, kinds = len(self.layout.layers), sorted({event.kind for event in self.events})
        return f"<RunRecord: {self.steps} steps, {layers} layers, events: {', '.join(kinds) or 'none'}>"

    def series(self, row: int, stat: str, reduce: Reduce = "mean") -> Series:
        """Return one statistic of one site over the steps in which the site was read.

        ``row`` is the site's index in ``layout.sites``, ``stat`` one of STATS. Of thinned steps ``reduce`` gives the
        mean, or the least or largest value. Raises KeyError for an unknown statistic.

        >>> run.series(0, "rms", reduce="max").at(1) >= 0
        True
        """
        values = self.history.stat(row, stat, reduce)
        seen = self.history.stat(row, "count", "max") > 0
        return Series(self.history.steps[seen], values[seen], self.history.width[seen])

    def scalar(self, name: str, stream: int | None = None, reduce: Reduce = "mean") -> Series:
        """Return one scalar over the steps in which it was measured. Of the loss and metrics, measured NaN are kept.

        ``name`` is one of SCALARS (``loss``, ``lr``, ``grad_norm``, ...) or ``metric/NAME``, ``stream`` the number of
        an optimizer, None for all. With ``min`` or ``max`` a thinned row has the extreme of its steps, and its mean if
        none was kept. The series is empty if the scalar was never measured.

        >>> len(run.scalar("loss"))
        40
        """
        values = self.history.scalars.get(name)
        if values is None:
            return Series(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
        keep = ~np.isnan(values)
        if reduce != "mean":
            end = self.history.scalars.get(ends_of(name)[reduce == "max"])
            values = values if end is None else np.where(np.isnan(end), values, end)
        if (bad := self.history.scalars.get(nonfinite_of(name))) is not None:
            keep |= bad > 0
        if stream is not None:
            keep &= self.history.stream == stream
        return Series(self.history.steps[keep], values[keep], self.history.width[keep])

    def histogram(self, row: int) -> Histograms:
        """Return the histograms of one site over the steps in which one was taken; in a run without them, of none.

        ``row`` is the site's index in ``layout.sites``.

        >>> run.histogram(0).counts.shape[0] == len(run.histogram(0).steps)
        True
        """
        return course_of(self.histograms, row)

    def fact(self, key: str, **match: Any) -> dict[str, Any] | None:
        """Return the newest value of a fact whose fields equal ``match``; None if it was never recorded.

        >>> run.fact("optimizer", stream=0)["type"]
        'SGD'
        """
        found = self.facts_of(key, **match)
        return found[-1].value if found else None

    def facts_of(self, key: str, **match: Any) -> tuple[Fact, ...]:
        """Return all versions of a fact whose fields equal ``match``, oldest first.

        >>> [fact.step for fact in run.facts_of("optimizer", stream=0)]
        [0]
        """
        return tuple(f for f in self.facts if f.key == key and all(f.value.get(k) == v for k, v in match.items()))

    def versions(self, kind: type[K], **match: Any) -> tuple[tuple[int, K], ...]:
        """Return all versions of a typed fact whose fields equal ``match``, oldest first, each with its step."""
        found = ((fact.step, fact.known) for fact in self.facts if fact.key == kind.KEY)
        return tuple((at, one) for at, one in found if all(getattr(one, k) == v for k, v in match.items()))

    def known(self, kind: type[K], **match: Any) -> K | None:
        """Return the newest version of a typed fact whose fields equal ``match``; None if it was never recorded."""
        found = self.versions(kind, **match)
        return found[-1][1] if found else None

    def known_each(self, kind: type[K]) -> tuple[K, ...]:
        """Return the newest version of each typed fact of a kind, one per value of its IDENTITY, oldest first."""
        newest = {
            tuple(getattr(one, name) for name in IDENTITY.get(kind.KEY, ())): one for _, one in self.versions(kind)
        }
        return tuple(newest.values())

    def events_of(self, *kinds: str) -> tuple[Event, ...]:
        """Return the events of some kinds, earliest first. An unknown kind has none.

        >>> [event.first_step for event in run.events_of("nonfinite_loss", "nonfinite_gradient")]
        [...]
        """
        return tuple(e for e in self.events if e.kind in kinds)

    @cached_property
    def streams(self) -> tuple[int, ...]:
        """Numbers of the optimizers that stepped."""
        return tuple(int(s) for s in np.unique(self.history.stream))


def empty_history() -> History:
    """Return a history without steps."""
    ints, table = np.zeros(0, np.int64), np.zeros((0, 0, 0), np.float32)
    return History(ints, ints, np.zeros(0), ints, np.zeros(0, bool), table, table, table, {})
