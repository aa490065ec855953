"""The differences of every site at every time: two histories, pairs of sites and stretches enter, Measured leaves.

Shape legend: G stretches of time, P pairs of sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.facts.params import ParamsFact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from neuraldbg.compare.alignment import Side, Stretches
    from neuraldbg.compare.sites import SitePair
    from neuraldbg.nouns import History, RunRecord
    from neuraldbg.nouns.comparison import Tolerance

    Floats = npt.NDArray[np.float64]
    Floats32 = npt.NDArray[np.float32]
    Bools = npt.NDArray[np.bool_]

AT_ONCE = 4_000_000
"""Largest number of values of one statistic that are unpacked at once."""
PLAIN = 100.0
"""Ratio of a sample's difference to that of all sites that were read in full, from which it is of other elements."""
_LEAST = 1e-3
MOMENTS = ("mean", "std", "rms", "min", "max")


@dataclass(frozen=True)
class Measured:
    """The measured differences of all pairs of sites over all stretches."""

    relative: Floats32
    """Largest difference of a moment, relative to the size of the tensor, shape (G, P); infinite if only one of the two
    has non-finite values, NaN if nothing was compared."""
    beyond: Bools
    """True if the difference is beyond the tolerance, shape (G, P)."""
    differs: Bools
    """True if any bit of any statistic differs, shape (G, P)."""
    elsewhere: Bools
    """True if the two runs read samples of other elements, so that the pair was left out, shape (P,)."""
    share: float
    """Share of the elements that were read, over the sites compared."""


def measure(runs: tuple[RunRecord, RunRecord], pairs: Sequence[SitePair], time: Stretches, tol: Tolerance) -> Measured:
    """Compare every pair at every stretch, some sites at a time."""
    shape = (len(time), len(pairs))
    relative = np.full(shape, np.nan, np.float32)
    beyond, differs = np.zeros(shape, bool), np.zeros(shape, bool)
    elsewhere = np.zeros(len(pairs), bool)
    if not len(time):  # a history without steps has no tables to look into
        return Measured(relative, beyond, differs, elsewhere, 0.0)
    read = total = 0.0
    parts = list(_parts(pairs, max(1, AT_ONCE // max(1, *(len(run.history) for run in runs)))))
    looked = _looked(runs, pairs, time, parts)
    sampled = np.zeros(len(pairs), bool)
    for part in parts:
        chunk = _Chunk(runs, pairs[part], time, looked[:, part])
        relative[:, part], beyond[:, part], differs[:, part] = chunk.compare(tol)
        elsewhere[part] = chunk.elsewhere.any(axis=0) & ~chunk.both.any(axis=0)
        sampled[part] = chunk.sampled.any(axis=0)
        read += float(chunk.count[0][chunk.both].sum())
        total += float(chunk.total[0][chunk.both].sum())
    astray = _astray(relative, pairs, sampled)
    relative[:, astray] = np.nan
    beyond[:, astray] = differs[:, astray] = False
    return Measured(relative, beyond, differs, elsewhere | astray, read / total if total else 0.0)


def _astray(relative: Floats32, pairs: Sequence[SitePair], sampled: Bools) -> Bools:
    """Return a mask (P,) of the pairs that are samples of other elements, as of tensors in another memory format: they
    differ while no site that was read in full does. Different data, outputs or weights would show in the gradients.
    """
    kinds = np.array([pair.one.kind for pair in pairs], dtype=object)
    outputs = np.isin(kinds, ("activation", "output_grad"))
    whole = ~sampled & (outputs | (kinds == "param_grad"))
    if not whole.any() or not sampled.any():
        return np.zeros(len(pairs), bool)
    level = np.fmax.reduce(relative[:, whole], axis=1)
    level[np.isnan(relative[:, whole]).any(axis=1)] = np.inf
    odd: Bools = np.any(relative > np.maximum(PLAIN * level, _LEAST)[:, None], axis=0) & sampled
    at_work = {pair.one.module for pair in pairs if pair.one.kind == "activation"}
    working = np.array([pair.one.kind == "param" and pair.one.module in at_work for pair in pairs], bool)
    odd &= outputs | working | (kinds == "input")
    names = {pair.one.label for pair, astray in zip(pairs, odd & working, strict=True) if astray}
    changed = np.array([pair.one.kind == "update" and pair.one.label in names for pair in pairs], bool)
    return np.asarray(odd | changed)


def _parts(pairs: Sequence[SitePair], most: int) -> Iterator[slice]:
    """Cut the pairs into parts of about ``most``; parameters of one layer stay together."""
    first = 0
    for i in range(1, len(pairs) + 1):
        if i == len(pairs) or (i - first >= most and pairs[i].group != pairs[i - 1].group):
            yield slice(first, i)
            first = i


def _looked(
    runs: tuple[RunRecord, RunRecord], pairs: Sequence[SitePair], time: Stretches, parts: Sequence[slice]
) -> Bools:
    """Return a mask (G, P) of where a site that was read in one run only is a difference: the other run has no such
    tensor, as of a weight without a gradient. Elsewhere the tensor is there, but was not read.
    """
    kinds = {pair.one.kind: np.zeros((2, len(time)), bool) for pair in pairs}
    both = np.zeros((len(time), len(pairs)), bool)
    for part in parts:
        of = np.array([pair.one.kind for pair in pairs[part]])
        seen = []
        for k, (history, side, rows) in enumerate(_sides(runs, pairs[part], time)):
            seen.append(side.gather(history.stat(rows, "count", "max"), highest=True) > 0)
            for kind in dict.fromkeys(of.tolist()):
                kinds[kind][k] |= seen[k][:, of == kind].any(axis=1)
        both[:, part] = seen[0] & seen[1]
    known = {pair.source: p for p, pair in enumerate(pairs)}
    looked = np.zeros_like(both)
    unheld = {name for run in runs for _, fact in run.versions(ParamsFact) for name in fact.not_in_optimizer}
    for p, pair in enumerate(pairs):
        if pair.one.kind == "param" or (pair.one.kind == "update" and pair.one.label in unheld):
            continue  # a weight that was not read is still there: the optimizer does not hold it, or not yet
        looked[:, p] = kinds[pair.one.kind].all(axis=0)
        # A gradient or an update is missing where the tensor that it belongs to was read in both runs.
        own = known.get(pair.belongs) if pair.belongs is not None else None
        if own is not None:
            looked[:, p] &= both[:, own]
    return looked


def _sides(
    runs: tuple[RunRecord, RunRecord], pairs: Sequence[SitePair], time: Stretches
) -> tuple[tuple[History, Side, list[int]], ...]:
    return tuple(
        (run.history, side, [pair.rows[k] for pair in pairs])
        for k, (run, side) in enumerate(zip(runs, (time.one, time.other), strict=True))
    )


class _Chunk:
    """A part of the pairs over all stretches, small enough to unpack."""

    def __init__(
        self,
        runs: tuple[RunRecord, RunRecord],
        pairs: Sequence[SitePair],
        time: Stretches,
        looked: Bools,
    ) -> None:
        self._sides = _sides(runs, pairs, time)
        self._thinned = bool((time.width > 1).any())
        groups = [pair.group for pair in pairs]
        self._starts = np.array([i for i in range(len(pairs)) if i == 0 or groups[i] != groups[i - 1]], np.intp)
        self.count, self.total = self._top("count"), self._top("total")
        seen = self.count[0] > 0, self.count[1] > 0
        apart = np.array([pair.apart for pair in pairs])
        self.sampled = (self.count[0] < self.total[0]) | (self.count[1] < self.total[1])
        same_size = self.total[0] == self.total[1]
        self.lone = (seen[0] != seen[1]) & ~apart & looked
        self.elsewhere = seen[0] & seen[1] & self.sampled & same_size & (apart | (self.count[0] != self.count[1]))
        self.both = seen[0] & seen[1] & ~self.elsewhere

    def _top(self, stat: str) -> tuple[Floats, Floats]:
        """Return the largest values of a statistic in each stretch, for each run."""
        one, other = (side.gather(h.stat(rows, stat, "max"), highest=True) for h, side, rows in self._sides)
        return one, other

    def _extremes(self, stat: str) -> Iterator[tuple[Floats, Floats]]:
        """Yield a statistic of both runs; for thinned steps its largest values, then its smallest."""
        yield self._top(stat)
        if self._thinned:
            one, other = (side.gather(h.stat(rows, stat, "min"), highest=False) for h, side, rows in self._sides)
            yield one, other

    def compare(self, tol: Tolerance) -> tuple[Floats, Bools, Bools]:
        """Return ``relative``, ``beyond`` and ``differs`` of the chunk's pairs."""
        off = {True: np.zeros(self.both.shape), False: np.zeros(self.both.shape)}
        size = {True: np.zeros(self.both.shape), False: np.zeros(self.both.shape)}
        differs = np.zeros(self.both.shape, bool)
        spreads: list[tuple[Floats, Floats]] = []
        for stat in MOMENTS:
            extreme = stat in ("min", "max")
            for one, other in self._extremes(stat):
                differs |= (one != other) & ~(np.isnan(one) & np.isnan(other))
                if stat == "std":
                    spreads.append((one, other))
                    continue
                off[extreme] = np.fmax(off[extreme], np.abs(one - other))
                if stat in ("rms", "min", "max"):
                    size[extreme] = np.fmax(size[extreme], np.fmax(np.abs(one), np.abs(other)))
        for one, other in spreads:  # once the size of the tensor is known
            apart = np.where(rounded(one, other, size[False], tol.rtol), 0.0, np.abs(one - other))
            off[False] = np.fmax(off[False], apart)
        relative = np.fmax(*(_over(off[kind], size[kind]) for kind in (True, False)))
        beyond = np.zeros(self.both.shape, bool)
        for kind in (True, False):
            among = np.maximum.reduceat(size[kind], self._starts, axis=1)
            yardstick = np.repeat(among, np.diff(self._starts, append=size[kind].shape[1]), axis=1)
            beyond |= off[kind] > tol.atol + tol.rtol * yardstick
        relative, beyond, differs = self._counts(relative, beyond, differs)
        relative[~(self.both | self.lone)] = np.nan
        return relative, beyond & (self.both | self.lone), differs & (self.both | self.lone)

    def _counts(self, relative: Floats, beyond: Bools, differs: Bools) -> tuple[Floats, Bools, Bools]:
        """Add differences of counts: elements, non-finite values, and exact zeros (which rounding alone can cause)."""
        bad = self._top("nonfinite")
        uneven = np.abs(bad[0] - bad[1])
        one_only = (bad[0] > 0) != (bad[1] > 0)
        sizes = np.abs(self.total[0] - self.total[1])
        relative = np.fmax(relative, _over(sizes, np.maximum(*self.total)))
        relative = np.fmax(relative, _over(uneven, np.maximum(*self.count)))
        relative[one_only & self.both] = np.inf
        relative[self.lone] = 1.0
        zeros = self._top("zeros")
        odd = (uneven > 0) | (sizes > 0) | self.lone
        return relative, beyond | odd, differs | odd | (zeros[0] != zeros[1])


def rounded(one: Floats, other: Floats, size: Floats, rtol: float) -> Bools:
    """Return True where two standard deviations differ only by the rounding of the mean square that they were computed
    from: where the mean is large, that is a large part of a small standard deviation.
    """
    with np.errstate(all="ignore"):  # a file may hold infinities
        return np.asarray(np.abs(one * one - other * other) <= rtol * size * size)


def _over(off: Floats, size: Floats) -> Floats:
    """Return the ratio of difference to size, 0 if nothing differs."""
    with np.errstate(all="ignore"):  # a file may hold two infinities
        return np.divide(off, size, out=np.zeros(off.shape), where=(off > 0) & (size > 0))
