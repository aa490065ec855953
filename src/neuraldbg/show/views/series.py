"""One statistic over steps: of each site of a layer, of each layer, or a scalar of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.layer_alias import resolve
from neuraldbg.nouns import SCALARS
from neuraldbg.show.axes.gaps import LONG, breaks
from neuraldbg.show.axes.ticks import wide
from neuraldbg.show.forms import Line, Lines, Scale
from neuraldbg.show.views.columns import end_of, unread_note, within
from neuraldbg.show.views.moments import guilty_of, marks_of
from neuraldbg.show.views.reading import KINDS, NORM, SHARES, check, scale_of
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Diagnosis, RunRecord, Series

UNITS = {"duration": "s", "overhead": "s"}
"""Unit of each scalar that has one."""
THINNED = "Older steps were thinned: a value is the mean of several, the band their range"


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Lines:
    """Return the scalar that ``stat`` names, else ``stat`` of the sites of ``layer``, or of the guilty layer."""
    if choice.stat in SCALARS:
        return scalars_of(run, diagnosis, choice, (choice.stat,), name="series", title=SCALARS[choice.stat])
    kind, stat = choice.kind or "param_grad", choice.stat or NORM
    check(kind, stat)
    layer = _layer(run, diagnosis, choice, kind)
    rows = [row for row in run.layout.rows(kind) if layer is None or run.layout.sites[row].module == layer]
    lines = tuple(line for row in rows if len((line := _line(run, row, stat, choice)).steps))
    scale, of = scale_of(stat), f"of {layer or 'the model'}"
    thinned = any(line.low is not None for line in lines)
    return Lines(
        name="series",
        title=f"{scale.label}: {KINDS[kind]} {of}",
        lines=lines,
        y=Scale(scale.label, scale.unit, log=scale.log and wide_lines(lines)),
        marks=marks_of(run, diagnosis, choice),
        guilty=guilty_of(diagnosis, {line.layer for line in lines if line.layer})[0],
        notes=tuple(note for note in (THINNED * thinned, unread_note(run), _end(run, choice, lines)) if note),
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
    middle, low, high = (_values(run, row, stat, end, choice) for end in ("mean", "min", "max"))
    thinned = bool((middle.width > 1).any())
    bad = within(run.series(row, "nonfinite", "max"), choice)
    gaps = breaks(middle.steps, middle.width)
    parts = [np.insert(one.values, gaps + 1, np.nan) for one in (middle, low, high)]
    return Line(
        site.label,
        np.insert(middle.steps, gaps + 1, (middle.steps + middle.width)[gaps]),
        parts[0],
        parts[1] if thinned else None,
        parts[2] if thinned else None,
        site.module,
        bad.steps[bad.values > 0],
    )


def _end(run: RunRecord, choice: Choice, lines: Sequence[Line]) -> str:
    """Write the step at which the lines end, if it is well before the end of the run or of the chosen steps."""
    if not lines:
        return ""
    last, end = max(int(line.steps[-1]) for line in lines), end_of(run, choice)
    first = min(int(line.steps[0]) for line in lines)
    told = choice.last is None and last == run.history.steps[run.history.read].max()  # by the note on unread steps
    if told or end - 1 - last <= max(1, LONG * (end - first)):
        return ""
    return f"The last reading is of step {last:,}: nothing was read of it in the {end - 1 - last:,} steps after that"


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
    """Return scalars of the run, a line for each optimizer that stepped: the two losses of a GAN are two."""
    lines = []
    for scalar in names:
        for stream in run.streams:
            series = within(run.scalar(scalar, stream), choice)
            if len(series):
                bad = ~np.isfinite(series.values)
                label = scalar if len(run.streams) == 1 else f"{scalar}, optimizer {stream}"
                lines.append(
                    Line(label, series.steps, np.where(bad, np.nan, series.values), nonfinite=series.steps[bad])
                )
    thinned = bool((run.history.width > 1).any())
    label = names[0] if len(names) == 1 else "time"
    return Lines(
        name=name,
        title=title,
        lines=tuple(lines),
        y=Scale(label, UNITS.get(names[0], ""), log=wide_lines(lines)),
        marks=marks_of(run, diagnosis, choice),
        notes=("Older steps were thinned: a value is the mean of several",) if thinned and lines else (),
        empty="" if lines else f"no {' or '.join(names)} was measured in these steps",
    )


def wide_lines(lines: Sequence[Line]) -> bool:
    """Return True if these lines together need a log axis."""
    return wide(np.concatenate([np.zeros(0), *(line.values for line in lines)]))


VIEW = Member(
    "series", "one statistic of a layer, or a scalar, over steps", compute, takes=("layer", "stat", "kind", "step")
)
