"""A run as the tables of a data frame: columns with types and meanings, given in chunks.

Five tables. ``steps``: a row for each recorded step, with its scalars. ``sites``: the long one, a row for each site and
step in which it was read, with a column for each statistic. ``histograms``: the distribution of the values of a site in
a few steps, a row for each bin that is not empty. ``events`` and ``layers``: the events and the layers of the run.
``steps`` and ``sites`` share the key columns ``step``, ``width`` and ``stream``, where both were thinned alike.

A row is for ``width`` steps. If that is 1 the numbers are those of the step, and columns that end in ``_low`` and
``_high`` are empty. Else they are the means over the steps (of ``nonfinite`` and ``loss_nonfinite`` the sums), and
``_low`` and ``_high`` the extremes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from neuraldbg.nouns import EDGES, METRIC, RANGED, SCALARS, column, ends_of, jsonable, metric_names, nonfinite_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from neuraldbg.export.exporter import Selection
    from neuraldbg.nouns import Diagnosis, History, RunRecord

SCHEMA = "neuraldbg.tables/1"
# 1  2026-11  first version: steps, sites, histograms, events, layers

UNITS = {"time_s": "s", "duration": "s", "overhead": "s"}
MEANINGS = {
    "total": "elements of the tensor, all calls and micro-batches of the step together",
    "count": "elements that were read: fewer than total where a large tensor was read in blocks",
    "nonfinite": "NaN and infinite values among the elements read",
    "mean": "mean of the finite elements read",
    "std": "standard deviation of the finite elements read (population)",
    "rms": "root of the mean square of the finite elements read; times the root of total it is the L2 norm",
    "min": "smallest finite element read",
    "max": "largest finite element read",
    "zeros": "elements read that are exactly 0",
    "units": "channels or features, 0 where there are none or too few rows were read to know which are dead",
    "dead": "units that were positive in none of the rows read since dead_since, 300 or more, over 20 or more steps",
    "saturated": "elements read at a bound of a bounded activation",
    "under": "finite elements that half precision rounds to 0",
    "over": "finite elements that half precision rounds to infinity",
    "dead_rows": "rows (images, tokens) in which all dead units were silent, 0 if none is dead",
    "dead_since": "first step from which on all dead units were silent, 0 if none is dead",
}
"""Meaning of each statistic of STATS."""
_TIME = {
    "step": ("int", "the first optimizer step that the row stands for, from 0"),
    "width": ("int", "steps from the first to the last of the row; 1 is full resolution"),
    "stream": ("int", "the optimizer that stepped, from 0"),
    "time_s": ("float", "seconds from the beginning of the run to the end of the first step of the row"),
}


_SITE = {
    "kind": ("text", "what is read there: activation, output_grad, param, param_grad, update, input or op"),
    "layer": ("text", "path of the layer, empty for the model itself"),
    "call": ("int", "which call of the layer within one forward pass, from 0"),
    "name": ("text", "of the parameter, or of a part of a nested output"),
}


class Words(NamedTuple):
    """A column of text: few different texts, and a code for each row."""

    codes: Any
    """Index of the text of each row, shape (N,)."""
    words: tuple[str, ...]


Values: TypeAlias = "np.ma.MaskedArray[Any, Any] | Words"
"""A column of a chunk; masked if there is no value, which is not the same as NaN."""


@dataclass(frozen=True)
class Column:
    """The name, type and meaning of one column of a table."""

    name: str
    type: str
    """``int``, ``float``, ``float32``, ``bool`` or ``text``."""
    meaning: str

    @property
    def unit(self) -> str:
        """Unit of the column; "" for a pure number."""
        return UNITS.get(self.name, "")


@dataclass(frozen=True)
class Table:
    """A table: its columns, and its rows in chunks."""

    name: str
    columns: tuple[Column, ...]
    chunks: Callable[[], Iterable[Sequence[Values]]]
    """Function that yields the rows in chunks: the values of all columns, in their order."""


def tables(run: RunRecord, diagnosis: Diagnosis, selection: Selection) -> tuple[Table, ...]:
    """Return the tables of a run; their rows are read later."""
    return (_steps(run), _sites(run, selection), _histograms(run, selection), _events(diagnosis), _layers(run))


def about(run: RunRecord, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the description of the run and its diagnosis, as strict JSON values."""
    body = {"schema": SCHEMA, "verdict": diagnosis.verdict, "summary": diagnosis.summary, "run": run.info}
    found = jsonable(body)
    assert isinstance(found, dict)
    return found


def measured(history: History, name: str) -> Any:
    """Return a mask (T,) of the rows in which a scalar was measured. NaN means not measured, except for a NaN loss, and
    a NaN of a metric.
    """
    found = ~np.isnan(history.scalars[name])
    if (bad := history.scalars.get(nonfinite_of(name))) is not None:
        found |= bad > 0
    return found


def scalar_rows(history: History) -> Any:
    """Return the rows of time with scalars: all except those that only have a table which was thinned less."""
    any_scalar = np.zeros(len(history), bool)
    for name in history.scalars:
        any_scalar |= measured(history, name)
    return np.flatnonzero(any_scalar | ~history.read)


def scalar_meanings(history: History) -> dict[str, str]:
    """Return the meaning of each scalar and of each metric of a run, and of the extremes that a thinned run has of them
    beside their mean.
    """
    found = dict(SCALARS)
    logged = [f"{METRIC}{name}" for name in metric_names(history.scalars)]
    for name in logged:
        found[name] = "logged by the program under this name: the mean of the step's values"
        found[nonfinite_of(name)] = f"how many of the step's values of {name} were NaN or Inf"
    for name in (*RANGED, *logged):
        for end, word in zip(ends_of(name), ("least", "largest"), strict=True):
            found[end] = f"{word} {name} of the row's steps"
    return found


def _steps(run: RunRecord) -> Table:
    history = run.history
    told = {name: meaning for name, meaning in scalar_meanings(history).items() if name in history.scalars}
    columns = (
        *(Column(name, *about) for name, about in _TIME.items()),
        Column("applied", "bool", "whether the optimizer changed the weights: false if it was halted or overflowed"),
        *(Column(name, "float", meaning) for name, meaning in told.items()),
    )

    def chunks() -> Iterator[Sequence[Values]]:
        rows = scalar_rows(history)
        yield (
            *_when(history, rows),
            np.ma.array(history.applied[rows]),
            *(np.ma.array(history.scalars[name][rows], mask=~measured(history, name)[rows]) for name in told),
        )

    return Table("steps", columns, chunks)


def _sites(run: RunRecord, selection: Selection) -> Table:
    history, whose = run.history, _whose(run)
    stats = selection.columns()
    rows, picked = np.array(selection.rows(run), np.int64), [column(stat) for stat in stats]
    thinned = bool((history.width[history.read] > 1).any())
    columns = [
        *(Column(name, *told) for name, told in _TIME.items()),
        *(Column(name, *told) for name, told in _SITE.items()),
        *(Column(stat, "float32", MEANINGS[stat]) for stat in stats),
    ]
    if thinned:
        ends = (("low", "least"), ("high", "largest"))
        columns += [
            Column(f"{stat}_{end}", "float32", f"{word} {stat} of the row's steps")
            for stat in stats
            for end, word in ends
        ]

    def chunks() -> Iterator[Sequence[Values]]:
        for slab in history.slabs():
            at, place = np.nonzero(slab.high[:, rows, column("count")] > 0)
            site = rows[place]
            values = [slab.mean[at, site, k] for k in picked]
            when = _when(history, slab.rows[at])
            found: list[Values] = [*when, *whose(site), *map(np.ma.array, values)]
            if thinned:
                single = history.width[slab.rows[at]] == 1
                for k in picked:
                    found += [np.ma.array(part[at, site, k], mask=single) for part in (slab.low, slab.high)]
            yield found

    return Table("sites", tuple(columns), chunks)


def _when(history: History, rows: Any) -> list[Values]:
    return [np.ma.array(part[rows]) for part in (history.steps, history.width, history.stream, history.time)]


def _whose(run: RunRecord) -> Callable[[Any], list[Values]]:
    """Return a function that gives the columns of _SITE for indices of sites in the layout."""
    sites = run.layout.sites
    kind, layer, name = (_coded([getattr(site, part) for site in sites]) for part in ("kind", "module", "name"))
    call = np.array([site.call for site in sites], np.int64)

    def columns(site: Any) -> list[Values]:
        of = [Words(text.codes[site], text.words) for text in (kind, layer, name)]
        return [of[0], of[1], np.ma.array(call[site]), of[2]]

    return columns


def _histograms(run: RunRecord, selection: Selection) -> Table:
    whose, rows = _whose(run), np.array(selection.rows(run), np.int64)
    columns = (
        Column("step", "int", "the optimizer step, from 0"),
        *(Column(name, *told) for name, told in _SITE.items()),
        Column("lower", "float", "the lower end of the bin"),
        Column("upper", "float", "its upper end; of the two the one farther from zero is outside"),
        Column("count", "int", "elements in the bin, of those that were read"),
    )

    def chunks() -> Iterator[Sequence[Values]]:
        for taken in run.histograms:
            width = taken.width.astype(np.int64)
            site = np.repeat(taken.rows.astype(np.int64), width)
            begin = np.repeat(np.cumsum(width) - width, width)
            place = np.repeat(taken.first.astype(np.int64), width) + np.arange(len(taken.counts)) - begin
            keep = (taken.counts > 0) & np.isin(site, rows)
            site, place = site[keep], place[keep]
            yield (
                np.ma.array(np.full(len(site), taken.step, np.int64)),
                *whose(site),
                np.ma.array(EDGES[place]),
                np.ma.array(EDGES[place + 1]),
                np.ma.array(taken.counts[keep].astype(np.int64)),
            )

    return Table("histograms", columns, chunks)


def _events(diagnosis: Diagnosis) -> Table:
    events = diagnosis.events
    columns = (
        Column("kind", "text", "what happened"),
        Column("transition", "text", "the family that it belongs to"),
        Column("layer", "text", "path of the layer, empty for the run as a whole"),
        Column("site", "text", "where it was seen: kind, slash, name"),
        Column("first_step", "int", "the step at which it began, from 0"),
        Column("last_step", "int", "the last step at which it was seen"),
        Column("confidence", "float", "how sure it is that the transition is real, 0 to 1"),
        Column("details", "text", "measured numbers and the thresholds that they crossed, as JSON"),
    )

    def chunks() -> Iterator[Sequence[Values]]:
        yield (
            *(
                _coded([getattr(event, part) or "" for event in events])
                for part in ("kind", "transition", "layer", "site")
            ),
            np.ma.array([event.first_step for event in events], np.int64),
            np.ma.array([event.last_step for event in events], np.int64),
            np.ma.array([event.confidence for event in events], np.float64),
            _coded([json.dumps(jsonable(event.details), allow_nan=False) for event in events]),
        )

    return Table("events", columns, chunks)


def _layers(run: RunRecord) -> Table:
    layers = run.layout.layers
    columns = (
        Column("layer", "text", "its path, empty for the model itself"),
        Column("type", "text", "its class"),
        Column("model", "text", "the model that it belongs to"),
        Column("order", "int", "its place in the order in which data flows, from 0"),
    )

    def chunks() -> Iterator[Sequence[Values]]:
        texts = (_coded([getattr(layer, part) for layer in layers]) for part in ("path", "type", "model"))
        yield (*texts, np.ma.array([run.layout.depth[layer.path] for layer in layers], np.int64))

    return Table("layers", columns, chunks)


def _coded(texts: Sequence[str]) -> Words:
    safe = [utf8(text) for text in texts]
    words = {word: code for code, word in enumerate(dict.fromkeys(safe))}
    return Words(np.array([words[word] for word in safe], np.int32), tuple(words))


def utf8(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
