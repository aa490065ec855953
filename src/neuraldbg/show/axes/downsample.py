"""A long line as fewer points that look the same: no extreme is lost, and each keeps its step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.axes.gaps import LONG

if TYPE_CHECKING:
    from neuraldbg.show.forms import Floats, Line


def thinned(line: Line, most: int) -> Line:
    """Return a line of at most ``most`` values: of equal stretches the least and the largest, the first where all are
    NaN. Of its extremes (``low``, ``high``), those of the stretch. Where the line breaks for long, that is kept too.
    """
    count = len(line.steps)
    if count <= most:
        return line
    size = -(-count // (most // 2))
    starts = np.arange(0, count, size)
    least = starts + _in_stretches(line.values, size, np.inf).argmin(axis=1)
    largest = starts + _in_stretches(line.values, size, -np.inf).argmax(axis=1)
    long = np.diff(line.steps, append=line.steps[-1]) >= LONG * (int(line.steps[-1]) - int(line.steps[0]))
    kept = np.unique(np.concatenate([least, largest, np.flatnonzero(np.isnan(line.values) & long)]))
    low, high = line.low, line.high
    if low is not None and high is not None:
        low, high = np.fmin.reduceat(low, starts)[kept // size], np.fmax.reduceat(high, starts)[kept // size]
    return replace(line, steps=line.steps[kept], values=line.values[kept], low=low, high=high)


def _in_stretches(values: Floats, size: int, instead: float) -> Floats:
    """Return values as (stretches, size), with a number for NaN and for the missing end of the last stretch."""
    padded = np.full(-(-len(values) // size) * size, instead)
    padded[: len(values)] = np.where(np.isnan(values), instead, values)
    return padded.reshape(-1, size)
