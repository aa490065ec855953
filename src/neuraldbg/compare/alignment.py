"""The alignment of two histories: both enter, the stretches of time over which they can be compared leave.

At full resolution a stretch is one step. Where older steps were thinned, by one run or by both and not alike, it is the
smallest stretch that begins and ends with a row in both: over the same steps the extremes must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.nouns import History

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Side:
    """The rows of one history by stretch: those of stretch g are ``rows[starts[g]:starts[g + 1]]``."""

    rows: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]

    def gather(self, values: Floats, *, highest: bool) -> Floats:
        """Reduce values of shape (T, ...) to (G, ...) by their extremes, ignoring NaN."""
        picked = values[self.rows]
        if len(self.starts) == len(self.rows):
            return picked
        found: Floats = (np.fmax if highest else np.fmin).reduceat(picked, self.starts, axis=0)
        return found


@dataclass(frozen=True)
class Stretches:
    """The G stretches of time over which two histories are compared, in order."""

    steps: Ints
    """First step of each stretch, shape (G,)."""
    width: Ints
    """Number of steps of each stretch, shape (G,)."""
    one: Side
    other: Side

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def thinned(self) -> int:
        """Number of steps that are compared as parts of longer stretches."""
        return int(self.width[self.width > 1].sum())


def stretches(one: History, other: History, keep: tuple[Bools, Bools], *, whole: bool) -> Stretches:
    """Align two histories by the index of the step, each optimizer with its counterpart.

    ``keep`` are the rows to consider, shape (T,) each. With ``whole`` thinned rows have all of their steps; without it
    they may be of other steps in the two runs, and only single steps are compared.
    """
    parts = []
    for stream in np.intersect1d(np.unique(one.stream[keep[0]]), np.unique(other.stream[keep[1]])):
        rows = [np.flatnonzero(k & (h.stream == stream)) for h, k in ((one, keep[0]), (other, keep[1]))]
        if not whole:
            rows = [picked[h.width[picked] == 1] for h, picked in ((one, rows[0]), (other, rows[1]))]
        if len(rows[0]) and len(rows[1]):
            parts.append(_aligned(one, other, rows[0], rows[1]))
    if not parts:
        nothing = np.zeros(0, np.int64)
        return Stretches(nothing, nothing, Side(nothing, nothing), Side(nothing, nothing))
    steps, width = (np.concatenate([getattr(part, name) for part in parts]) for name in ("steps", "width"))
    order = np.argsort(steps, kind="stable")
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    ends = np.cumsum([len(part.steps) for part in parts])
    sides = []
    for k in (0, 1):
        owner = np.concatenate(
            [place[part.owner[k] + end - len(part.steps)] for part, end in zip(parts, ends, strict=True)]
        )
        rows_of = np.concatenate([part.rows[k] for part in parts])
        by_owner = np.argsort(owner, kind="stable")
        sides.append(Side(rows_of[by_owner], np.flatnonzero(np.diff(owner[by_owner], prepend=-1))))
    return Stretches(steps[order], width[order], *sides)


@dataclass(frozen=True)
class _Part:
    """The stretches of one optimizer in the order of time, with the rows of each history that belong to them."""

    steps: Ints
    width: Ints
    rows: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
    owner: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
    """Index of the stretch of each row."""


def _aligned(one: History, other: History, rows_one: npt.NDArray[np.intp], rows_other: npt.NDArray[np.intp]) -> _Part:
    """Chain rows that overlap. A chain is kept if both sides begin, end and cover the same steps."""
    begin = np.concatenate([one.steps[rows_one], other.steps[rows_other]])
    end = begin + np.concatenate([one.width[rows_one], other.width[rows_other]])
    second = np.arange(len(begin)) >= len(rows_one)
    order = np.argsort(begin, kind="stable")
    fresh = np.r_[True, begin[order][1:] >= np.maximum.accumulate(end[order])[:-1]]
    chain = np.empty(len(begin), np.intp)
    chain[order] = np.cumsum(fresh) - 1
    spans = np.empty((2, 3, int(fresh.sum())), np.int64)
    for k, mine in enumerate((~second, second)):
        spans[k] = np.array([[np.iinfo(np.int64).max], [-1], [0]])
        np.minimum.at(spans[k, 0], chain[mine], begin[mine])
        np.maximum.at(spans[k, 1], chain[mine], end[mine])
        np.add.at(spans[k, 2], chain[mine], (end - begin)[mine])
    alike = (spans[0] == spans[1]).all(axis=0)
    place = np.cumsum(alike) - 1
    kept = [alike[chain[: len(rows_one)]], alike[chain[len(rows_one) :]]]
    low, high = spans[0, 0, alike], spans[0, 1, alike]
    return _Part(
        low,
        high - low,
        (rows_one[kept[0]], rows_other[kept[1]]),
        (place[chain[: len(rows_one)][kept[0]]], place[chain[len(rows_one) :][kept[1]]]),
    )
