"""Lines and a weight in, moving averages of the lines out, with the measured values kept beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.forms import SmoothedLines

if TYPE_CHECKING:
    from neuraldbg.show.forms import Floats, Ints, Line, Lines


def smoothed(view: Lines, weight: float) -> Lines:
    """Return the lines of a view as exponential moving averages, the view itself for a weight of 0.

    ``weight`` is the share that an average keeps from one point to the next, from 0 up to 1. On a log axis powers of
    ten are averaged: one spike of 1e10 would hide all that follows it.
    """
    if weight <= 0 or view.empty:
        return view
    over = round(1 / (1 - weight))
    of = "powers of ten" if view.y.log else "values"
    note = f"Smoothed: a moving average of {of} over about {over:,} points; thin lines are not smoothed"
    return SmoothedLines(
        name=view.name,
        title=view.title,
        notes=(note, *view.notes),
        marks=view.marks,
        guilty=view.guilty,
        lines=tuple(_smoothed(line, weight, log=view.y.log) for line in view.lines),
        y=view.y,
        x=view.x,
        measured=view.lines,
    )


def _smoothed(line: Line, weight: float, *, log: bool) -> Line:
    values = line.values
    if not log:
        return replace(line, values=moving_average(line.steps, values, weight))
    powers = np.log10(np.where(values > 0, values, np.nan))
    return replace(line, values=10 ** moving_average(line.steps, powers, weight))


def moving_average(steps: Ints, values: Floats, weight: float) -> Floats:
    """Return the exponential moving average of each value; NaN where the value is, and what follows passes over it.

    An average begins at the first value, not at 0 (the correction of Kingma and Ba 2015, section 3). Where points lie
    farther apart than usual more of it is forgotten.
    """
    apart = np.diff(steps, prepend=steps[:1]).astype(np.float64)
    usual = float(np.median(apart[1:])) if len(steps) > 1 else 1.0
    kept = weight ** np.maximum(1.0, apart / max(usual, 1.0))
    found = np.full(len(values), np.nan)
    total = share = 0.0
    for i, (value, keep) in enumerate(zip(values.tolist(), kept.tolist(), strict=True)):
        total, share = total * keep, share * keep
        if np.isfinite(value):
            total, share = total + (1 - keep) * value, share + (1 - keep)
            found[i] = total / share
    return found
