"""Rows of recorded time as arrays: steps enter, columns leave, and old rows are folded into bins.

Shape legend: T rows of time, S sites, K statistics (STATS), N scalars.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.nouns import STATS, column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from neuraldbg.nouns import Step

    Floats = npt.NDArray[np.float64]
    Floats32 = npt.NDArray[np.float32]
    Ints = npt.NDArray[np.int64]

COUNT = column("count")
SUMMED = (column("nonfinite"),)
"""Statistics that are added over folded steps; all others are averaged over the steps in which the site was seen."""
SUMMED_SCALARS = ("loss_nonfinite",)
MAX_STREAMS = 8
"""With more optimizers than this among the rows of a fold, bins mix them: a program that makes a new optimizer at every
step would else never be thinned."""
MOMENTS = tuple(column(name) for name in ("mean", "std", "rms", "min", "max"))
UNSEEN = np.zeros(len(STATS), np.float32)
UNSEEN[list(MOMENTS)] = np.nan
_LARGEST = np.finfo(np.float32).max
_SMALLEST = np.finfo(np.float32).smallest_subnormal


class Stamp(NamedTuple):
    """Where a step stands in the recording."""

    ordinal: int
    """How many steps were recorded before it."""
    turn: int
    """How many steps of the same stream were recorded before it: bins hold steps of one stream."""


@dataclass(frozen=True)
class Block:
    """Some rows of time, oldest first. A row is a step, or a bin of steps of one stream."""

    ordinal: Ints
    """Of the first step in the row."""
    turn: Ints
    """Of the first step in the row."""
    folded: Ints
    """Steps in the row."""
    steps: Ints
    """Step.index of the first."""
    width: Ints
    """Steps from the first to the last of the row, both included; more than ``folded`` where streams take turns."""
    time: Floats
    stream: Ints
    applied: npt.NDArray[np.bool_]
    mean: Floats32
    """(T, S, K)."""
    low: Floats32
    high: Floats32
    """The same object as ``mean`` where no row is a bin."""
    seen: Floats32
    """(T, S): steps of the row in which the site was seen."""
    names: tuple[str, ...]
    scalars: Floats
    """(T, N): NaN where not measured."""
    measured: Floats
    """(T, N): steps of the row in which the scalar was a finite number."""

    def __len__(self) -> int:
        return len(self.ordinal)

    @property
    def binned(self) -> bool:
        """Whether some row stands for several steps."""
        return self.low is not self.mean

    def slice(self, first: int, last: int) -> Block:
        """Return the rows first..last-1."""
        cut = {f.name: getattr(self, f.name)[first:last] for f in fields(self) if f.name != "names"}
        if not self.binned:
            cut["low"] = cut["high"] = cut["mean"]
        return Block(names=self.names, **cut)


def from_steps(steps: Sequence[Step], stamps: Sequence[Stamp]) -> Block:
    """Stack steps into rows at full resolution. Sites that a step did not know yet count as not seen."""
    mean = to_float32([step.table for step in steps])
    names, scalars = _scalar_table([step.scalars for step in steps])
    return Block(
        ordinal=np.array([stamp.ordinal for stamp in stamps], np.int64),
        turn=np.array([stamp.turn for stamp in stamps], np.int64),
        folded=np.ones(len(steps), np.int64),
        steps=np.array([step.index for step in steps], np.int64),
        width=np.ones(len(steps), np.int64),
        time=np.array([step.time for step in steps], np.float64),
        stream=np.array([step.stream for step in steps], np.int64),
        applied=np.array([step.applied for step in steps], bool),
        mean=mean,
        low=mean,
        high=mean,
        seen=(mean[:, :, COUNT] > 0).astype(np.float32),
        names=names,
        scalars=scalars,
        measured=np.isfinite(scalars).astype(np.float64),
    )


def to_float32(tables: Sequence[npt.NDArray[np.float64]]) -> Floats32:
    """Stack (S_i, K) tables to (T, max S_i, K) float32.

    A finite number stays finite (clipped at the largest float32) and one that is not zero stays so: "infinite" and
    "exactly zero" are findings that rounding must not make.
    """
    sites = max((len(table) for table in tables), default=0)
    wide = np.empty((len(tables), sites, len(STATS)), np.float64)
    for row, table in enumerate(tables):
        wide[row, : len(table)] = table
        wide[row, len(table) :] = UNSEEN
    return narrowed(wide)


def narrowed(wide: Floats) -> Floats32:
    """Return float64 as float32 under the rule of ``to_float32``."""
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(np.float32)
    infinite = np.isinf(narrow)
    if infinite.any():
        clipped = infinite & np.isfinite(wide)
        narrow[clipped] = np.copysign(_LARGEST, wide[clipped])
    lost = (narrow == 0) & (wide != 0)
    if lost.any():
        narrow[lost] = np.copysign(_SMALLEST, wide[lost])
    return narrow


def _scalar_table(rows: Sequence[Mapping[str, float]]) -> tuple[tuple[str, ...], Floats]:
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    values = [[float(row.get(name, np.nan)) for name in names] for row in rows]
    return names, np.array(values, np.float64).reshape(len(rows), len(names))


def padded(table: Floats32, sites: int) -> Floats32:
    """Give a (T, S, K) table rows for sites that appeared later: not seen."""
    missing = sites - table.shape[1]
    if missing <= 0:
        return table
    return np.concatenate([table, np.broadcast_to(UNSEEN, (len(table), missing, len(STATS)))], axis=1)


def join(blocks: Sequence[Block]) -> Block:
    """Put blocks one after the other."""
    if len(blocks) == 1:
        return blocks[0]
    sites = max(block.mean.shape[1] for block in blocks)
    names = tuple(dict.fromkeys(name for block in blocks for name in block.names))
    plain = ("ordinal", "turn", "folded", "steps", "width", "time", "stream", "applied")
    merged = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in plain}
    mean = np.concatenate([padded(block.mean, sites) for block in blocks])
    binned = any(block.binned for block in blocks)
    return Block(
        **merged,
        mean=mean,
        low=np.concatenate([padded(block.low, sites) for block in blocks]) if binned else mean,
        high=np.concatenate([padded(block.high, sites) for block in blocks]) if binned else mean,
        seen=np.concatenate([np.pad(b.seen, ((0, 0), (0, sites - b.seen.shape[1]))) for b in blocks]),
        names=names,
        scalars=np.concatenate([_columns(b.names, b.scalars, names, np.nan) for b in blocks]),
        measured=np.concatenate([_columns(b.names, b.measured, names, 0.0) for b in blocks]),
    )


def _columns(names: tuple[str, ...], values: Floats, wanted: tuple[str, ...], missing: float) -> Floats:
    if names == wanted:
        return values
    laid = np.full((len(values), len(wanted)), missing)
    laid[:, [wanted.index(name) for name in names]] = values
    return laid


def fold(block: Block, bin_steps: int) -> Block:
    """Fold rows into bins of ``bin_steps`` steps of the same stream (of any stream where they are many).

    Moments are averaged over the steps in which the site was seen, weighted by their number, and over finite values;
    ``nonfinite`` is added up; ``low`` and ``high`` keep the extremes. A bin's time, step and stream are
    those of its first step; it counts as applied when all its steps were.
    """
    mixed = len(np.unique(block.stream)) > MAX_STREAMS
    place = (block.ordinal if mixed else block.turn) // bin_steps
    stream = np.zeros_like(block.stream) if mixed else block.stream
    order = np.lexsort((block.ordinal, place, stream))
    place, stream = place[order], stream[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(place) != 0) | (np.diff(stream) != 0)])
    # Back from stream by stream to the order of time.
    starts_in_time = np.argsort(block.ordinal[order][starts], kind="stable")
    first = order[starts][starts_in_time]
    last_step = np.maximum.reduceat((block.steps + block.width - 1)[order], starts)[starts_in_time]
    mean, low, high, seen = _fold_tables(block, order, starts)
    scalars, measured = _fold_scalars(block, order, starts)
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
        names=block.names,
        scalars=scalars[starts_in_time],
        measured=measured[starts_in_time],
    )


def _fold_tables(block: Block, order: Ints, starts: Ints) -> tuple[Floats32, Floats32, Floats32, Floats32]:
    sites, stats = block.mean.shape[1:]
    mean, low, high = (np.empty((len(starts), sites, stats), np.float32) for _ in range(3))
    total = np.empty((len(starts), sites), np.float32)
    for row, (first, last) in enumerate(zip(starts, [*starts[1:], len(order)], strict=True)):
        rows = order[first:last]
        seen = block.seen[rows]
        total[row] = seen.sum(axis=0)
        mean[row] = _average(block.mean[rows], seen)
        low[row] = np.fmin.reduce(_where_seen(block.low[rows], seen), axis=0)
        high[row] = np.fmax.reduce(_where_seen(block.high[rows], seen), axis=0)
    # A site never seen in the bin keeps count 0 and NaN moments.
    for table in (mean, low, high):
        table[total == 0] = UNSEEN
    return mean, low, high, total


def _average(table: Floats32, seen: Floats32) -> Floats32:
    """(T, S, K) and (T, S) to (S, K)."""
    value = table.astype(np.float64)
    finite = np.isfinite(value)
    value[~finite] = 0.0
    summed = value[:, :, list(SUMMED)].sum(axis=0)
    weight = finite * seen[:, :, None]
    value *= weight
    with np.errstate(invalid="ignore", divide="ignore"):
        folded: Floats = value.sum(axis=0) / weight.sum(axis=0)
    folded[:, list(SUMMED)] = summed
    return narrowed(folded)


def _where_seen(table: Floats32, seen: Floats32) -> Floats32:
    hidden = seen == 0
    return np.where(hidden[:, :, None], np.float32(np.nan), table) if hidden.any() else table


def _fold_scalars(block: Block, order: Ints, starts: Ints) -> tuple[Floats, Floats]:
    if not block.names:
        return np.zeros((len(starts), 0)), np.zeros((len(starts), 0))
    values, weight = block.scalars[order], block.measured[order]
    measured = np.add.reduceat(weight, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        folded = np.add.reduceat(np.where(weight > 0, values, 0.0) * weight, starts) / measured
    # Where nothing finite was measured, an infinity still shows; fmax passes over NaN.
    folded = np.where(measured > 0, folded, np.fmax.reduceat(values, starts))
    for name in SUMMED_SCALARS:
        if name in block.names:
            k = block.names.index(name)
            counted = np.add.reduceat(np.nan_to_num(values[:, k]), starts)
            folded[:, k] = np.where(measured[:, k] > 0, counted, np.nan)
    return folded, measured
