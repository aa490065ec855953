"""Old rows folded into bins: means, extremes and sums of many steps in one row.

Shape legend: T rows of time, S sites, K statistics (STATS), N scalars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns import column, ends_of
from neuraldbg.nouns.step import ranged, summed
from neuraldbg.record.row_block import UNSEEN, Block, narrowed

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.record.row_block import Floats, Floats32, Ints

SUMMED = (column("nonfinite"),)
"""Statistics that are added over folded steps; all others are averaged over the steps in which the site was seen."""
MAX_STREAMS = 8
"""Number of streams among the rows of a fold above which bins mix them: a program that makes a new optimizer at every
step would otherwise never be thinned."""


def fold(block: Block, bin_steps: int) -> Block:
    """Fold rows into bins of ``bin_steps`` steps of the same stream; of mixed streams above MAX_STREAMS of them.

    Moments are averaged over the steps in which the site was read, weighted by their number, and over finite values;
    ``nonfinite`` is summed; ``low`` and ``high`` keep the extremes, and so do two more columns for each scalar in
    RANGED, and each metric. A bin has the time, step and stream of its first
    step, and counts as applied if all its steps were.
    """
    order, starts = _bins(block, bin_steps)
    # ``order`` may go stream by stream; readers expect rows in the order of time.
    starts_in_time = np.argsort(block.ordinal[order][starts], kind="stable")
    first = order[starts][starts_in_time]
    last_step = np.maximum.reduceat((block.steps + block.width - 1)[order], starts)[starts_in_time]
    mean, low, high, seen = _fold_tables(block, order, starts)
    names, scalars, measured = _fold_scalars(block, order, starts)
    return Block(
        ordinal=block.ordinal[first],
        turn=block.turn[first],
        folded=np.add.reduceat(block.folded[order], starts)[starts_in_time],
        steps=block.steps[first],
        width=last_step - block.steps[first] + 1,
        time=block.time[first],
        stream=block.stream[first],
        applied=np.logical_and.reduceat(block.applied[order], starts)[starts_in_time],
        mean=mean[starts_in_time],
        low=low[starts_in_time],
        high=high[starts_in_time],
        seen=seen[starts_in_time],
        names=names,
        scalars=scalars[starts_in_time],
        measured=measured[starts_in_time],
    )


def _bins(block: Block, bin_steps: int) -> tuple[Ints, Ints]:
    """Return an order of the rows in which those of a bin are neighbours, and the place in it where each bin begins."""
    alone = bool((block.stream == block.stream[0]).all())
    mixed = not alone and len(np.unique(block.stream)) > MAX_STREAMS
    place = (block.ordinal if mixed else block.turn) // bin_steps
    if alone or mixed:  # already in the order of time
        return np.arange(len(block)), np.flatnonzero(np.r_[True, np.diff(place) != 0])
    order = np.lexsort((block.ordinal, place, block.stream))
    changes = (np.diff(place[order]) != 0) | (np.diff(block.stream[order]) != 0)
    return order, np.flatnonzero(np.r_[True, changes])


def _fold_tables(block: Block, order: Ints, starts: Ints) -> tuple[Floats32, Floats32, Floats32, Floats32]:
    sites, stats = block.mean.shape[1:]
    mean, low, high = (np.empty((len(starts), sites, stats), np.float32) for _ in range(3))
    total = np.empty((len(starts), sites), np.float32)
    if not sites:
        return mean, low, high, total
    for row, (first, last) in enumerate(zip(starts, [*starts[1:], len(order)], strict=True)):
        rows = order[first:last]
        seen = block.seen[rows]
        total[row] = seen.sum(axis=0)
        mean[row] = _average(block.mean[rows], seen)
        low[row] = _extreme(np.fmin, block.low[rows], seen)
        high[row] = _extreme(np.fmax, block.high[rows], seen)
    # A site never seen in the bin keeps count 0 and NaN moments.
    for table in (mean, low, high):
        table[total == 0] = UNSEEN
    return mean, low, high, total


def _average(table: Floats32, seen: Floats32) -> Floats32:
    """Average the rows of a bin: shapes (T, S, K) and (T, S) to (S, K)."""
    finite = np.isfinite(table)
    value = table.astype(np.float64)
    with np.errstate(invalid="ignore"):
        folded: Floats = value.mean(axis=0)
    folded[:, list(SUMMED)] = value[:, :, list(SUMMED)].sum(axis=0)
    # The weighted average takes longer; few sites have non-finite values, or were read in some of the steps only.
    odd = ~finite.all(axis=(0, 2)) | (seen != seen[0]).any(axis=0)
    if odd.any():
        folded[odd] = _weighed(value[:, odd], finite[:, odd], seen[:, odd])
    return narrowed(folded)


def _weighed(value: Floats, finite: npt.NDArray[np.bool_], seen: Floats32) -> Floats:
    value[~finite] = 0.0
    summed = value[:, :, list(SUMMED)].sum(axis=0)
    weight = finite * seen[:, :, None]
    value *= weight
    with np.errstate(invalid="ignore", divide="ignore"):
        folded: Floats = value.sum(axis=0) / weight.sum(axis=0)
    folded[:, list(SUMMED)] = summed
    return folded


def _extreme(extreme: np.ufunc, table: Floats32, seen: Floats32) -> Floats32:
    """Reduce the rows of a bin to an extreme, leaving out the zeros of steps in which a site was not read."""
    found: Floats32 = extreme.reduce(table, axis=0)
    hidden = (seen == 0).any(axis=0)
    if hidden.any():
        part = table[:, hidden]
        part[seen[:, hidden] == 0] = np.nan
        found[hidden] = extreme.reduce(part, axis=0)
    return found


def _fold_scalars(block: Block, order: Ints, starts: Ints) -> tuple[tuple[str, ...], Floats, Floats]:
    """Return the names of the folded scalars, their values and the number of steps in which each was measured."""
    ends = {end for name in block.names if ranged(name) for end in ends_of(name)}
    kept = [k for k, name in enumerate(block.names) if name not in ends]
    names = [block.names[k] for k in kept]
    if not names:
        return (), np.zeros((len(starts), 0)), np.zeros((len(starts), 0))
    values, weight = block.scalars[order][:, kept], block.measured[order][:, kept]
    measured = np.add.reduceat(weight, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        folded = np.add.reduceat(np.where(weight > 0, values, 0.0) * weight, starts) / measured
    # Where nothing finite was measured, an infinity still shows; fmax passes over NaN.
    folded = np.where(measured > 0, folded, np.fmax.reduceat(values, starts))
    for k, name in enumerate(names):
        if summed(name):
            counted = np.add.reduceat(np.nan_to_num(values[:, k]), starts)
            folded[:, k] = np.where(measured[:, k] > 0, counted, np.nan)
    for k, name in [(k, name) for k, name in enumerate(names) if ranged(name)]:
        for end, extreme in zip(ends_of(name), (np.fmin, np.fmax), strict=True):
            found = extreme.reduceat(_ends(block, order, values[:, k], end), starts)
            names.append(end)
            folded = np.column_stack([folded, found])
            measured = np.column_stack([measured, measured[:, k] * np.isfinite(found)])
    return tuple(names), folded, measured


def _ends(block: Block, order: Ints, values: Floats, end: str) -> Floats:
    """Return the extreme of each row: the kept one of a bin, the value itself of a single step; NaN if none is
    finite.
    """
    finite = np.where(np.isfinite(values), values, np.nan)
    if end not in block.names:
        return finite
    kept = block.scalars[order][:, block.names.index(end)]
    return np.where(np.isfinite(kept), kept, finite)
