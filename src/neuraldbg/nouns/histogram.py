"""Histograms of the values of tensors: counts in bins that are the same for every site, step and run.

The edges are powers of two with a sign, so that any two histograms can be compared or added: ``(-2**-32, 2**-32)``
holds zero and smaller values, then come ``[2**-32, 2**-31)`` to ``[2**31, 2**32)`` and one bin for larger values, and
the same mirrored for negative values. NaN and infinity are in no bin: the statistic ``nonfinite`` counts them.

Shape legend: S sites, B bins in use, C steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

LOWEST, HIGHEST = -32, 32
"""Exponents of two: smaller values count as zero, larger ones are in the last bin."""
ZERO = HIGHEST - LOWEST + 1
"""Index of the bin of zero, in the middle."""
BINS = 2 * ZERO + 1
"""Number of bins."""
_POWERS = np.exp2(np.arange(LOWEST, HIGHEST + 1, dtype=np.float64))
EDGES = np.concatenate([[-np.inf], -_POWERS[::-1], _POWERS, [np.inf]])
"""Edges of the bins, shape (BINS + 1,), ascending. An edge belongs to the bin that is farther from zero."""
EDGES.flags.writeable = False


@dataclass(frozen=True)
class StepHistograms:
    """The histograms of one step, of all sites with one, each without the empty bins at its two ends."""

    step: int
    rows: npt.NDArray[np.int32]
    """Rows of the sites in the layout, shape (S,), ascending."""
    first: npt.NDArray[np.uint8]
    """Index of the first bin that is kept of each site, shape (S,)."""
    width: npt.NDArray[np.uint8]
    """Number of bins that are kept of each site, shape (S,); 0 if no value was finite."""
    counts: npt.NDArray[np.uint32]
    """Counts of the bins that are kept, one site after the other, shape (sum(width),)."""

    def __post_init__(self) -> None:
        """Raise ValueError if the arrays are inconsistent: they may come from a file."""
        whole = len(self.rows) == len(self.first) == len(self.width) and self.width.sum(dtype=int) == len(self.counts)
        if len(self.rows) and (self.rows[0] < 0 or (np.diff(self.rows.astype(np.int64)) <= 0).any()):
            raise ValueError("histograms of sites that do not ascend")
        if not whole or (self.first + self.width.astype(int) > BINS).any():
            raise ValueError("histograms whose parts do not fit together")

    @classmethod
    def of(cls, step: int, rows: Sequence[int], counts: npt.NDArray[np.int64]) -> StepHistograms:
        """Build the histograms of a step from the counts of some sites, shape (S, BINS), in any order."""
        order = np.argsort(np.asarray(rows, np.int64))
        counts = counts[order]
        used = counts > 0
        some = used.any(axis=1)
        first = np.where(some, used.argmax(axis=1), ZERO)
        width = np.where(some, BINS - used[:, ::-1].argmax(axis=1) - first, 0)
        bins = np.arange(BINS)
        kept = (bins >= first[:, None]) & (bins < (first + width)[:, None])
        return cls(
            step,
            np.asarray(rows, np.int32)[order],
            first.astype(np.uint8),
            width.astype(np.uint8),
            counts[kept].astype(np.uint32),
        )

    @classmethod
    def from_lists(cls, step: int, sites: Sequence[Sequence[int]]) -> StepHistograms:
        """Build the histograms from the result of ``to_lists``. Raises ValueError, OverflowError or IndexError for
        anything else.
        """
        if any(type(number) is not int for site in sites for number in site):
            raise ValueError("the numbers of histograms are whole")
        rows = np.array([site[0] for site in sites], np.int32)
        first = np.array([site[1] for site in sites], np.uint8)
        width = np.array([len(site) - 2 for site in sites], np.uint8)
        return cls(step, rows, first, width, np.array([count for site in sites for count in site[2:]], np.uint32))

    def to_lists(self) -> list[list[int]]:
        """Return a list of row, first bin and counts for each site."""
        counts = self.counts.tolist()
        sites = zip(self.rows.tolist(), self.first.tolist(), self.width.tolist(), self._ends.tolist(), strict=True)
        return [[row, first, *counts[end - width : end]] for row, first, width, end in sites]

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return sum(part.nbytes for part in (self.rows, self.first, self.width, self.counts))

    def counts_of(self, row: int) -> Ints | None:
        """Return the counts of one site, shape (BINS,); None if it has no histogram in this step."""
        at = int(np.searchsorted(self.rows, row))
        if at == len(self.rows) or self.rows[at] != row:
            return None
        first, width, end = int(self.first[at]), int(self.width[at]), int(self._ends[at])
        whole = np.zeros(BINS, np.int64)
        whole[first : first + width] = self.counts[end - width : end]
        return whole

    @cached_property
    def _ends(self) -> Ints:
        return np.cumsum(self.width, dtype=np.int64)


@dataclass(frozen=True)
class Histograms:
    """The histograms of one site over the steps of a run, in the bins that any of them uses."""

    steps: Ints
    """Steps with a histogram, shape (C,)."""
    edges: Floats
    """Edges of the bins, shape (B + 1,), ascending; the first or the last is infinite if there are values beyond 2**32.
    A site without a finite value has the bin of zero alone."""
    counts: Ints
    """Number of elements in each bin, shape (C, B); of a large tensor those of a sample, as for the statistics."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def shares(self) -> Floats:
        """Counts of each step divided by their sum, shape (C, B); NaN if no value was finite."""
        total = self.counts.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            shares: Floats = self.counts / total
        return shares


def course_of(histograms: Sequence[StepHistograms], row: int) -> Histograms:
    """Return the histograms of one site over the steps that have one of this site."""
    found = [(each.step, counts) for each in histograms if (counts := each.counts_of(row)) is not None]
    steps = np.array([step for step, _ in found], np.int64)
    counts = np.stack([counts for _, counts in found]) if found else np.zeros((0, BINS), np.int64)
    used = np.flatnonzero(counts.any(axis=0))
    first, last = (int(used[0]), int(used[-1])) if len(used) else (ZERO, ZERO)
    return Histograms(steps, EDGES[first : last + 2], counts[:, first : last + 1])
