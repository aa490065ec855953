"""One statistic over steps: of each site of a layer, of each layer, or a scalar of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.errors import UnknownMetric
from neuraldbg.layer_alias import resolve
from neuraldbg.nouns import METRIC, SCALARS, STATS, metric_names, nonfinite_of
from neuraldbg.nouns.loss_names import loss_names
from neuraldbg.show.axes.gaps import LONG
from neuraldbg.show.axes.ticks import wide
from neuraldbg.show.forms import Line, Lines, Scale
from neuraldbg.show.views.averaged import RAW, averaged, mean_note
from neuraldbg.show.views.columns import end_of, unread_note, within
from neuraldbg.show.views.moments import guilty_of, marks_of
from neuraldbg.show.views.reading import KINDS, NORM, SHARES, check, scale_of
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from neuraldbg.nouns import Diagnosis, RunRecord, Series
    from neuraldbg.nouns.run import Reduce

UNITS = {"duration": "s", "overhead": "s", "resident": "B", "device_memory": "B"}
"""Unit of each scalar that has one."""
LOGGED = "logged by the program; the mean, where it logged several values in a step"
"""Meaning of a metric."""
ENDS: tuple[Reduce, ...] = ("mean", "min", "max")


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Lines:
    """Return the scalar or metric that ``stat`` names, else ``stat`` of the sites of ``layer`` or the guilty one."""
    if choice.stat is not None and (choice.stat in SCALARS or choice.stat.startswith(METRIC)):
        return _scalar(run, diagnosis, choice, choice.stat)
    if f"{METRIC}{choice.stat}" in run.history.scalars and choice.stat not in (NORM, *STATS):
        return _scalar(run, diagnosis, choice, f"{METRIC}{choice.stat}")
    kind, stat = choice.kind or "param_grad", choice.stat or NORM
    check(kind, stat)
    layer = _layer(run, diagnosis, choice, kind)
    rows = [row for row in run.layout.rows(kind) if layer is None or run.layout.sites[row].module == layer]
    lines = tuple(line for row in rows if len((line := _line(run, row, stat, choice)).steps))
    last = max((int(s.steps[-1]) for row in rows if len(s := _values(run, row, stat, "mean", choice))), default=0)
    scale, of = scale_of(stat), f"of {layer or 'the model'}"
    return Lines(
        name="series",
        title=f"{scale.label}: {KINDS[kind]} {of}",
        lines=lines,
        y=Scale(scale.label, scale.unit, log=scale.log and wide_lines(lines)),
        end=end_of(run, choice),
        marks=marks_of(run, diagnosis, choice),
        guilty=guilty_of(diagnosis, {line.layer for line in lines if line.layer})[0],
        notes=tuple(note for note in (mean_note(lines), unread_note(run), _end(run, choice, lines, last)) if note),
        empty="" if lines else f"nothing was read of the {KINDS[kind]} {of} in these steps",
    )


def _layer(run: RunRecord, diagnosis: Diagnosis, choice: Choice, kind: str) -> str | None:
    """Return the chosen layer, else the guilty one, else the first with such a site."""
    if choice.layer is not None:
        return resolve(run.layout, choice.layer)
    there = [run.layout.sites[row].module for row in run.layout.rows(kind)]
    rank = run.layout.depth
    guilty, _ = guilty_of(diagnosis, set(there))
    return next(iter((*guilty, *sorted(there, key=lambda path: rank.get(path, len(rank))))), None)


def _line(run: RunRecord, row: int, stat: str, choice: Choice) -> Line:
    site = run.layout.sites[row]
    ends = (_values(run, row, stat, "mean", choice), _values(run, row, stat, "min", choice))
    bad = within(run.series(row, "nonfinite", "max"), choice).values > 0
    return averaged(site.label, (*ends, _values(run, row, stat, "max", choice)), bad=bad, layer=site.module)


def _end(run: RunRecord, choice: Choice, lines: Sequence[Line], last: int) -> str:
    """Write the ``last`` step that was read, if it is well before the end of the run or of the chosen steps."""
    if not lines:
        return ""
    end = end_of(run, choice)
    first = min(int(line.steps[0]) for line in lines)
    told = choice.last is None and last == run.history.steps[run.history.read].max()  # by the note on unread steps
    if told or end - 1 - last <= max(1, LONG * (end - first)):
        return ""
    return f"The last reading is of step {last:,}, {end - 1 - last:,} steps before the last one shown"


def _values(run: RunRecord, row: int, stat: str, end: str, choice: Choice) -> Series:
    reduce = "min" if end == "min" else "max" if end == "max" else "mean"
    series = within(run.series(row, "rms" if stat == NORM else stat, reduce), choice)  # type: ignore[arg-type]
    factor = np.ones(1)
    if stat == NORM:
        factor = np.sqrt(within(run.series(row, "total", "max"), choice).values)
    elif stat in SHARES:
        among = within(run.series(row, SHARES[stat], "max"), choice).values
        factor = np.divide(100.0, among, out=np.full(among.shape, np.nan), where=among > 0)
        if end == "mean" and stat == "nonfinite":  # it is summed over the steps that a row stands for
            factor /= series.width
    return type(series)(series.steps, series.values * factor, series.width)


def scalars_of(
    run: RunRecord, diagnosis: Diagnosis, choice: Choice, names: tuple[str, ...], *, name: str, title: str
) -> Lines:
    """Return scalars of the run, a line for each optimizer that stepped."""
    lines = tuple(line for scalar in names for line in _streams(run, scalar, choice))
    label = names[0].removeprefix(METRIC) if len(names) == 1 else "time"
    return Lines(
        name=name,
        title=title,
        lines=lines,
        y=Scale(label, UNITS.get(names[0], ""), log=wide_lines(lines)),
        end=end_of(run, choice),
        marks=marks_of(run, diagnosis, choice),
        notes=tuple(note for note in (mean_note(lines),) if note),
        empty="" if lines else f"no {' or '.join(names).removeprefix(METRIC)} was measured in these steps",
    )


def _streams(run: RunRecord, scalar: str, choice: Choice) -> Iterator[Line]:
    """Yield one scalar of each optimizer that has it in the chosen steps."""
    if scalar == "loss":
        yield from loss_lines(run, choice)
        return
    if scalar.startswith(METRIC):  # of the program, whatever optimizer stepped
        line = scalar_line(run, scalar, None, scalar[len(METRIC) :], choice)
        if len(line.steps):
            yield line
        return
    for stream in run.streams:
        label = scalar if len(run.streams) == 1 else f"{scalar}, optimizer {stream}"
        line = scalar_line(run, scalar, stream, label, choice)
        if len(line.steps):
            yield line


def loss_lines(run: RunRecord, choice: Choice, raw: int = RAW) -> tuple[Line, ...]:
    """Return the loss of each optimizer in the chosen steps, under its name."""
    lines = (scalar_line(run, "loss", stream, name, choice, raw) for stream, name in loss_names(run).items())
    return tuple(line for line in lines if len(line.steps))


def scalar_line(run: RunRecord, name: str, stream: int | None, label: str, choice: Choice, raw: int = RAW) -> Line:
    """Return a scalar of the run as a line, by the mean and the range of stretches where it is long or thinned."""
    mean, low, high = (within(run.scalar(name, stream, end), choice) for end in ENDS)
    bad = ~np.isfinite(mean.values)
    if counted := nonfinite_of(name):  # the mean of a thinned row is finite even if some of its values were not
        odd = run.scalar(counted, stream)
        bad |= np.isin(mean.steps, odd.steps[odd.values > 0])
    return averaged(label, (mean, low, high), bad=bad, gaps=False, raw=raw)


def _scalar(run: RunRecord, diagnosis: Diagnosis, choice: Choice, name: str) -> Lines:
    """Return one scalar of the run, with its meaning below it. Raises UnknownMetric."""
    if name.startswith(METRIC):
        meaning = LOGGED
        if name not in run.history.scalars:
            raise UnknownMetric(name[len(METRIC) :], metric_names(run.history.scalars))
    else:
        meaning = SCALARS[name]
    view = scalars_of(run, diagnosis, choice, (name,), name="series", title=scalar_title(name))
    return replace(view, notes=(f"{meaning[:1].upper()}{meaning[1:]}", *view.notes))


TITLES = {"lr": "Learning rate", "grad_norm": "Gradient norm", "unclipped_norm": "Gradient norm before clipping"}
"""Titles of the scalars whose names are abbreviations."""


def scalar_title(name: str) -> str:
    """Return the title of a scalar, as a heading."""
    if name.startswith(METRIC):
        return name[len(METRIC) :]
    return TITLES.get(name) or name.replace("_", " ").capitalize()


def wide_lines(lines: Sequence[Line]) -> bool:
    """Return True if these lines together need a log axis."""
    ends = (part for line in lines for part in (line.values, line.low, line.high) if part is not None)
    return wide(np.concatenate([np.zeros(0), *ends]))


VIEW = Member(
    "series", "one statistic of a layer, or a scalar, over steps", compute, takes=("layer", "stat", "kind", "step")
)
