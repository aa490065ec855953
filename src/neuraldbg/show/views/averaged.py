"""A long or thinned series as the mean and the range of stretches of about equal length.

A record keeps some parts of a run step by step and others as means of many steps. Drawn as they are stored, a curve
would be a thick hash in the one part and a smooth line in the other, and look as if the training had changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.axes.gaps import breaks
from neuraldbg.show.forms import Line

if TYPE_CHECKING:
    from neuraldbg.nouns import Series
    from neuraldbg.show.forms import Bools, Floats, Ints

RAW = 480
"""Largest number of values that are drawn one by one."""
MOST, FEWEST = 240, 40
"""Points of a curve of means: at most, and at least where some of the record is finer than that."""


def averaged(
    name: str,
    ends: tuple[Series, Series, Series],
    *,
    bad: Bools | None = None,
    layer: str | None = None,
    gaps: bool = True,
    raw: int = RAW,
) -> Line:
    """Return a series as a line: each value if there are few, else means with their range.

    ``ends`` are the mean, the least and the largest value of each row. ``bad`` marks rows with NaN or infinite values,
    shape (T,); by default those whose mean is not finite. With ``gaps`` the line breaks where nothing was read for
    long.
    """
    mean = ends[0]
    bad = ~np.isfinite(mean.values) if bad is None else bad
    if not len(mean):
        return Line(name, mean.steps, mean.values, layer=layer, nonfinite=mean.steps)
    middle, low, high = (np.where(np.isfinite(one.values), one.values, np.nan) for one in ends)
    cuts = breaks(mean.steps, mean.width) if gaps else np.zeros(0, np.int64)
    size = _size(mean, raw)
    if size <= 1:
        steps, nonfinite, ranged = mean.steps, mean.steps[bad], False
    else:
        starts = _starts(mean, bad, cuts, size)
        cuts = np.searchsorted(starts, cuts, side="right") - 1
        steps = _places(mean, bad, starts)
        nonfinite = steps[np.logical_or.reduceat(bad, starts)]
        middle, low, high = _mean(middle, mean.width, starts), _end(low, starts, np.fmin), _end(high, starts, np.fmax)
        ranged = True
    # A constant stays one: an axis would be zoomed into what is rounded away.
    middle = np.clip(middle, low, high)
    ranged = ranged or bool((mean.width > 1).any())
    last = mean.steps + mean.width - 1
    after = (last if size <= 1 else last[np.append(starts[1:], len(mean)) - 1])[cuts] + 1
    parts = [np.insert(one, cuts + 1, np.nan) for one in (middle, low, high)]
    return Line(
        name,
        np.insert(steps, cuts + 1, after),
        parts[0],
        parts[1] if ranged else None,
        parts[2] if ranged else None,
        layer,
        nonfinite,
    )


def mean_note(lines: tuple[Line, ...]) -> str:
    """Write what the points and the bands of lines are; empty if each point is one step."""
    return "Lines are means over several steps; bands span minimum to maximum" * any(
        line.low is not None for line in lines
    )


def _size(series: Series, raw: int) -> float:
    """Return the number of steps of a point: 1 draws each row by itself."""
    widest = int(series.width.max())
    if len(series) <= (raw if widest == 1 else FEWEST):
        return 1.0
    span = int((series.steps + series.width).max()) - int(series.steps[0])
    return max(span / MOST, min(float(widest), span / FEWEST))


def _starts(series: Series, bad: Bools, cuts: Ints, size: float) -> Ints:
    """Return the first row of each point. A point begins where the first bad row does, and after each gap."""
    place = ((series.steps - series.steps[0]) / size).astype(np.int64)
    new = np.diff(place, prepend=-1) != 0
    new[cuts + 1] = True
    if bad.any():
        new[int(bad.argmax())] = True
    return np.flatnonzero(new)


def _places(series: Series, bad: Bools, starts: Ints) -> Ints:
    """Return the step at which each point is drawn: its middle, or its first bad step, which a legend names."""
    ends = np.append(starts[1:], len(series)) - 1
    middle = (series.steps[starts] + (series.steps + series.width - 1)[ends]) // 2
    rows = np.where(bad, np.arange(len(series)), len(series))
    first = np.minimum.reduceat(rows, starts)
    found: Ints = np.where(first < len(series), series.steps[np.minimum(first, len(series) - 1)], middle)
    return found


def _mean(values: Floats, width: Ints, starts: Ints) -> Floats:
    weight = np.where(np.isfinite(values), width, 0).astype(np.float64)
    total = np.add.reduceat(np.where(weight > 0, values, 0.0) * weight, starts)
    among = np.add.reduceat(weight, starts)
    found: Floats = np.divide(total, among, out=np.full(len(starts), np.nan), where=among > 0)
    return found


def _end(values: Floats, starts: Ints, extreme: np.ufunc) -> Floats:
    found: Floats = extreme.reduceat(values, starts)
    return found
