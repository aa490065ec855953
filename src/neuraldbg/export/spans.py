"""The start and end of steps, in seconds since the run began."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.nouns import History

    Floats = npt.NDArray[np.float64]


def spans(history: History, rows: npt.NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return start and end of rows that are in the order of time; the spans of one optimizer do not overlap.

    A single step lasts from the end of the step before, of any optimizer, to its own end: both are recorded. Of a row
    for several steps, the end of the first and the mean duration are recorded.
    """
    duration = history.scalars.get("duration", np.full(len(history), np.nan))[rows]
    closed, single = history.time[rows], history.width[rows] == 1
    begins = closed - np.where(np.isfinite(duration), duration, 0.0)
    ends = closed.copy()
    for stream in np.unique(history.stream[rows]):
        own = np.flatnonzero(history.stream[rows] == stream)
        follows = begins[own[1:]]
        bins = ~single[own]
        # A row of several steps lasts until the next one begins, or else by the mean duration of its steps.
        ends[own[:-1]] = np.where(bins[:-1], follows, ends[own[:-1]])
        last = own[-1]
        if bins[-1] and np.isfinite(duration[last]):
            ends[last] = begins[last] + duration[last] * history.width[rows][last]
        ends[own] = np.maximum(ends[own], begins[own])
        begins[own[1:]] = np.maximum(begins[own[1:]], ends[own[:-1]])
        ends[own] = np.maximum(ends[own], begins[own])
    return begins, ends


def time_of(history: History, step: int) -> float:
    """Return the time at which a step ended, or the first step of its row if it has no row of its own."""
    before = np.flatnonzero(history.steps <= step)
    return float(history.time[before[-1] if len(before) else 0]) if len(history) else 0.0
