"""The record of a run as a plain value: all data that a diagnosis needs, from a live session or from a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from neuraldbg.nouns.curve import curve_svg
from neuraldbg.nouns.histogram import StepHistograms, course_of
from neuraldbg.nouns.html import div, number_text, safe, shown
from neuraldbg.nouns.layout import Layout
from neuraldbg.nouns.site import column

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


@dataclass(frozen=True)
class Outcome:
    """The end of the watched program: completed, by an exception, interrupted or halted."""

    kind: str = "running"
    """One of OUTCOMES; a killed program stays ``running``."""
    message: str = ""
    """For ``raised`` the exception as Python prints it, for ``halted`` the reason."""
    where: str = ""
    """File and line of the user's own code for ``raised``; "" if there is none."""


@dataclass(frozen=True)
class RunInfo:
    """The program, its environment, and the coverage: how well the program could be observed."""

    script: str = ""
    argv: tuple[str, ...] = ()
    started: float = 0.0
    """Unix time."""
    models: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of python, torch and neuraldbg."""
    device: str = "cpu"
    coverage: Mapping[str, Any] = field(default_factory=dict)
    """Coverage: {"layers": int, "seen": int, "never_fired": [path], "notes": [str], "errors": int, ...}.

    "coarse" is the number of steps that are recorded as parts of bins, or not at all, because the recorder did not keep
    up.
    """
    outcome: Outcome = field(default_factory=Outcome)
    seed: int | None = None


@dataclass(frozen=True)
class Series:
    """The values of one statistic over steps. In thinned parts of the run one value covers ``width`` steps."""

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
        """Return the series of the finite values."""
        keep = np.isfinite(self.values)
        return Series(self.steps[keep], self.values[keep], self.width[keep])

    def between(self, first: int, last: int) -> Series:
        """Return the series of the steps from ``first`` to ``last``, both included."""
        keep = (self.steps >= first) & (self.steps <= last)
        return Series(self.steps[keep], self.values[keep], self.width[keep])

    def at(self, step: int) -> float:
        """Return the value of a step; NaN if there is none."""
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


@dataclass(frozen=True)
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
    """Values by scalar name, shape (T,), averaged over thinned steps; NaN if not measured."""

    def __len__(self) -> int:
        return len(self.steps)

    def table(self, reduce: Reduce = "mean") -> npt.NDArray[np.float32]:
        """Return ``mean``, ``low`` or ``high``, shape (T, sites, len(STATS)), by the reduction of thinned steps."""
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
        """Return the table of one row of time, shape (sites, len(STATS))."""
        table: npt.NDArray[np.float32] = self.table(reduce)[at]
        return table

    def slabs(self) -> Iterator[Slab]:
        """Yield all tables that were read, a few at a time, in the order of time."""
        read = np.flatnonzero(self.read)
        for first in range(0, len(read), _SLAB):
            at = read[first : first + _SLAB]
            yield Slab(at, self.mean[at], self.low[at], self.high[at])

    def stat(self, rows: int | list[int] | tuple[int, ...], name: str, reduce: Reduce = "mean") -> Floats:
        """Return one statistic of one site, shape (T,), or of several, shape (T, len(rows))."""
        picked = self.table(reduce)[:, rows if isinstance(rows, int) else list(rows), column(name)]
        return np.asarray(picked, dtype=np.float64)


@dataclass(frozen=True)
class RunRecord:
    """The record of a run: info with outcome and coverage, layout, history, facts, events and histograms."""

    info: RunInfo = field(default_factory=RunInfo)
    layout: Layout = field(default_factory=Layout)
    history: History = field(default_factory=lambda: empty_history())  # noqa: PLW0108 (defined below)
    facts: tuple[Fact, ...] = ()
    """Facts in step order."""
    events: tuple[Event, ...] = ()
    """Events in order of first step."""
    steps: int = 0
    """Number of optimizer steps in the whole run."""
    histograms: tuple[StepHistograms, ...] = ()
    """Histograms of a few steps, in step order: the first steps, then ever farther apart."""

    def series(self, row: int, stat: str, reduce: Reduce = "mean") -> Series:
        """Return one statistic of one site over the steps in which the site was read."""
        values = self.history.stat(row, stat, reduce)
        seen = self.history.stat(row, "count", "max") > 0
        return Series(self.history.steps[seen], values[seen], self.history.width[seen])

    def scalar(self, name: str, stream: int | None = None) -> Series:
        """Return one scalar over the steps in which it was measured. For the loss, measured NaN values are kept."""
        values = self.history.scalars.get(name)
        if values is None:
            return Series(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
        keep = ~np.isnan(values)
        if name == "loss" and "loss_nonfinite" in self.history.scalars:
            keep |= self.history.scalars["loss_nonfinite"] > 0
        if stream is not None:
            keep &= self.history.stream == stream
        return Series(self.history.steps[keep], values[keep], self.history.width[keep])

    def histogram(self, row: int) -> Histograms:
        """Return the histograms of one site over the steps in which one was taken; in a run without them, of none."""
        return course_of(self.histograms, row)

    def fact(self, key: str, **match: Any) -> dict[str, Any] | None:
        """Return the newest value of a fact whose fields equal ``match``; None if it was never recorded."""
        found = self.facts_of(key, **match)
        return found[-1].value if found else None

    def facts_of(self, key: str, **match: Any) -> tuple[Fact, ...]:
        """Return all versions of a fact whose fields equal ``match``, oldest first."""
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
        """Return the newest version of each typed fact of a kind, one per value of its ``IDENTITY``, oldest first."""
        newest = {tuple(getattr(one, name) for name in kind.IDENTITY): one for _, one in self.versions(kind)}
        return tuple(newest.values())

    def events_of(self, *kinds: str) -> tuple[Event, ...]:
        """Return the events of some kinds, earliest first."""
        return tuple(e for e in self.events if e.kind in kinds)

    @cached_property
    def streams(self) -> tuple[int, ...]:
        """Numbers of the optimizers that stepped."""
        return tuple(int(s) for s in np.unique(self.history.stream))


def empty_history() -> History:
    """Return a history without steps."""
    ints, table = np.zeros(0, np.int64), np.zeros((0, 0, 0), np.float32)
    return History(ints, ints, np.zeros(0), ints, np.zeros(0, bool), table, table, table, {})
