"""Many steps as few columns, in which a spike of one step remains visible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.nouns import History, RunRecord, Series
    from neuraldbg.show.forms import Floats, Ints
    from neuraldbg.show.views.view import Choice


@dataclass(frozen=True)
class Columns:
    """The rows of time of each column: those of column c are ``rows[starts[c]:starts[c + 1]]``."""

    rows: npt.NDArray[np.intp]
    """Rows of the history in which sites were read, in order of time."""
    starts: npt.NDArray[np.intp]
    steps: Ints
    """First step of each column, shape (C,)."""
    width: Ints
    """Number of steps of each column, shape (C,)."""
    note: str
    """Description of the binning; "" if each column is one row of the record."""
    row_steps: Ints
    row_width: Ints
    """First step and number of steps of each row, shape (rows,)."""

    def only(self, *places: int) -> Columns:
        """Return some of the columns, in order and each once."""
        ends = np.append(self.starts[1:], len(self.rows))
        at = sorted(set(places))
        parts = [self.rows[self.starts[c] : ends[c]] for c in at]
        starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
        places_of = np.concatenate([np.arange(self.starts[c], ends[c]) for c in at])
        spans = self.row_steps[places_of], self.row_width[places_of]
        return Columns(np.concatenate(parts), starts, self.steps[at], self.width[at], self.note, *spans)

    def reduce(self, values: Floats, how: str) -> Floats:
        """Reduce values of shape (T, ...) to (C, ...) by ``max``, ``min`` or ``mean``; NaN means not read."""
        return self.together(values[self.rows], how)

    def together(self, picked: Floats, how: str) -> Floats:
        """Reduce values of the rows of these columns only, as ``reduce`` does."""
        if not len(self.starts):
            return picked
        if how == "mean":
            there = np.isfinite(picked)
            count = np.add.reduceat(there, self.starts, axis=0, dtype=np.int64)
            total = np.add.reduceat(np.where(there, picked, 0.0), self.starts, axis=0)
            return np.where(count > 0, total / np.maximum(count, 1), np.nan)
        if len(self.starts) == len(self.rows):  # a row a column
            return picked
        reduced: Floats = {"max": np.fmax, "min": np.fmin}[how].reduceat(picked, self.starts, axis=0)
        return reduced


def columns_of(history: History, choice: Choice, end: int | None = None) -> Columns:
    """Return the steps at which sites were read, in at most ``choice.columns`` columns.

    Columns begin at least half a column's width apart, so that a single step that was read right before or after others
    can be seen. ``end`` is the step before which the picture ends, if that is after the last step that was
    read: columns are as wide as if they reached up to it, and the note counts all of the picture's steps.
    """
    alone = each_row(history, choice)
    if not len(alone.rows):
        return alone
    steps, ends = alone.steps, alone.steps + alone.width
    span = max(int(ends.max()), end or 0) - int(steps[0])
    starts = _apart(steps, span / choice.columns)
    each = -(-span // choice.columns)
    lasts = np.append(starts[1:], len(steps)) - 1
    width = np.maximum.accumulate(ends)[lasts] - steps[starts]
    note = f"Each column covers about {each:,} of {span:,} steps" if len(starts) < len(steps) else ""
    return Columns(alone.rows, starts, steps[starts], width, note, alone.row_steps, alone.row_width)


def each_row(history: History, choice: Choice) -> Columns:
    """Return each row of the chosen steps in which sites were read as a column."""
    keep = history.read.copy()
    if choice.first is not None:
        keep &= history.steps + history.width > choice.first
    if choice.last is not None:
        keep &= history.steps <= choice.last
    rows = np.flatnonzero(keep)
    spans = history.steps[rows], history.width[rows]
    return Columns(rows, np.arange(len(rows)), *spans, "", *spans)


def _apart(steps: Ints, width: float) -> npt.NDArray[np.intp]:
    """Return the first row of each column of ``width`` steps. Columns that begin less than half a width apart, as where
    single steps were read at both sides of a border, are one.
    """
    place = ((steps - steps[0]) / max(width, 1.0)).astype(np.int64)
    kept: list[int] = []
    for start in np.flatnonzero(np.diff(place, prepend=-1)).tolist():
        if not kept or steps[start] - steps[kept[-1]] >= width / 2:
            kept.append(start)
    return np.array(kept, np.intp)


def within(series: Series, choice: Choice) -> Series:
    """Return the part of a series that lies in the chosen steps."""
    if choice.first is None and choice.last is None:
        return series
    last = np.iinfo(np.int64).max if choice.last is None else choice.last
    return series.between(choice.first or 0, int(last))


def end_of(run: RunRecord, choice: Choice) -> int:
    """Return the step before which a map ends: that of the run or of the choice, even if no layer was read there."""
    return min(run.steps, run.steps if choice.last is None else choice.last + 1)


def unread_note(run: RunRecord) -> str:
    """Write in how many steps the layers were read, if not in all."""
    width = run.history.width[run.history.read]
    unread = run.steps - int(width.sum())  # a row that stands for several steps may hold unread ones too
    if unread <= 0:
        return ""
    few = "at most " if (width > 1).any() else ""
    ends = (run.history.steps + run.history.width)[run.history.read]
    tail = run.steps - int(ends.max(initial=0))
    last = f"; the last was step {run.steps - tail - 1:,}" if tail > 1 else ""
    return f"Layers were read in {few}{run.steps - unread:,} of {run.steps:,} steps, to limit the overhead{last}"
