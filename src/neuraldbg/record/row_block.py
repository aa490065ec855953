"""Rows of recorded time as arrays: steps in, columns out.

A step is kept in two parts, which are thinned apart: the row of its scalars, which every step has, and the table of its
sites, which a light step does not have. Both are blocks; the first has no sites, the second no scalars.

Shape legend: T rows of time, S sites, K statistics (STATS), N scalars.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from dataclasses import dataclass, fields
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.nouns import STATS, column
from neuraldbg.nouns.step import ends_of, ranged, summed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from neuraldbg.nouns import Step

    Floats = npt.NDArray[np.float64]
    Floats32 = npt.NDArray[np.float32]
    Ints = npt.NDArray[np.int64]

COUNT = column("count")
MOMENTS = tuple(column(name) for name in ("mean", "std", "rms", "min", "max"))
UNSEEN = np.zeros(len(STATS), np.float32)
UNSEEN[list(MOMENTS)] = np.nan
_LARGEST = np.finfo(np.float32).max
_SMALLEST = np.finfo(np.float32).smallest_subnormal
_PLAIN = ("ordinal", "turn", "folded", "steps", "width", "time", "stream", "applied")


class Amendment(NamedTuple):
    """A scalar of a step that comes after the step."""

    value: float
    before: float | None = None
    """The value that the step had before, which this one replaces; None if it had none."""


@dataclass(frozen=True)
class Block:
    """Some rows of time as arrays, oldest first. A row is a step, or a bin of steps of one stream."""

    ordinal: Ints
    """Number of steps recorded before the first step of the row, shape (T,)."""
    turn: Ints
    """Number of steps of the same part and stream recorded before the first step of the row, shape (T,)."""
    folded: Ints
    """Number of steps in the row, shape (T,)."""
    steps: Ints
    """``Step.index`` of the first step, shape (T,)."""
    width: Ints
    """Number of steps from the first to the last of the row, both included, shape (T,); more than ``folded`` if streams
    take turns, or light steps lie between."""
    time: Floats
    """Time of the first step, shape (T,), seconds."""
    stream: Ints
    """Stream of the first step, shape (T,)."""
    applied: npt.NDArray[np.bool_]
    """True if all steps of the row were applied, shape (T,)."""
    mean: Floats32
    """Means of the statistics, shape (T, S, K)."""
    low: Floats32
    """Minima of the statistics; the same object as ``mean`` if no row is a bin."""
    high: Floats32
    """Maxima of the statistics; the same object as ``mean`` if no row is a bin."""
    seen: Floats32
    """Number of steps of the row in which the site was read, shape (T, S)."""
    names: tuple[str, ...]
    """Names of the scalars."""
    scalars: Floats
    """Values of the scalars, shape (T, N), NaN if not measured."""
    measured: Floats
    """Number of steps of the row in which the scalar was a finite number, shape (T, N)."""

    def __len__(self) -> int:
        return len(self.ordinal)

    @property
    def binned(self) -> bool:
        """True if the block has bins."""
        return self.low is not self.mean

    def slice(self, first: int, last: int) -> Block:
        """Return the rows from ``first`` to ``last - 1``."""
        cut = {f.name: getattr(self, f.name)[first:last] for f in fields(self) if f.name != "names"}
        if not self.binned:
            cut["low"] = cut["high"] = cut["mean"]
        return Block(names=self.names, **cut)


def rows_of(steps: Sequence[Step], ordinal: Ints, turn: Ints) -> Block:
    """Stack the scalars of steps into rows without sites."""
    names, scalars = _scalar_table([step.scalars for step in steps])
    return _stacked(steps, ordinal, turn, np.zeros((len(steps), 0, len(STATS)), np.float32), names, scalars)


def tables_of(steps: Sequence[Step], ordinal: Ints, turn: Ints) -> Block:
    """Stack the tables of steps into rows without scalars. Sites added after a step count as not read in it."""
    return _stacked(steps, ordinal, turn, to_float32([step.table for step in steps]), (), np.zeros((len(steps), 0)))


def _stacked(
    steps: Sequence[Step], ordinal: Ints, turn: Ints, mean: Floats32, names: tuple[str, ...], scalars: Floats
) -> Block:
    ones = np.ones(len(steps), np.int64)
    return Block(
        ordinal=ordinal,
        turn=turn,
        folded=ones,
        steps=np.array([step.index for step in steps], np.int64),
        width=ones,
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

    A finite number stays finite (clipped at the largest float32), and a nonzero one stays nonzero: rounding must not
    produce the findings "infinite" and "exactly zero".
    """
    sites = max((len(table) for table in tables), default=0)
    wide = np.empty((len(tables), sites, len(STATS)), np.float64)
    for row, table in enumerate(tables):
        wide[row, : len(table)] = table
        wide[row, len(table) :] = UNSEEN
    return narrowed(wide)


def narrowed(wide: Floats) -> Floats32:
    """Convert float64 to float32 by the rule of ``to_float32``."""
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
    """Return the names and values, shape (T, N), of the scalars of steps."""
    # Steps have one of a few sets of scalars: those of one set are converted together.
    alike: dict[tuple[str, ...], list[int]] = {}
    last: tuple[str, ...] | None = None
    members: list[int] = []
    for i, row in enumerate(rows):
        own = tuple(row)
        if own != last:
            members, last = alike.setdefault(own, []), own
        members.append(i)
    if len(alike) == 1:
        (names,) = alike
        return names, _values(rows, len(names))
    names = tuple(dict.fromkeys(chain.from_iterable(alike)))
    place = {name: k for k, name in enumerate(names)}
    table = np.full((len(names), len(rows)), np.nan)
    for own, members in alike.items():
        filled = _values([rows[i] for i in members], len(own))
        table[np.ix_([place[name] for name in own], members)] = filled.T
    return names, table.T


def _values(rows: Sequence[Mapping[str, float]], count: int) -> Floats:
    """Return the values of mappings with the same names, shape (T, N). ``struct`` converts Python's floats in half the
    time of numpy.
    """
    flat = struct.pack(f"{count * len(rows)}d", *chain.from_iterable([row.values() for row in rows]))
    return np.frombuffer(flat, np.float64).reshape(len(rows), count)


def padded(table: Floats32, sites: int) -> Floats32:
    """Extend a table of shape (T, S, K) by sites that were added later, as not read."""
    missing = sites - table.shape[1]
    if missing <= 0:
        return table
    return np.concatenate([table, np.broadcast_to(UNSEEN, (len(table), missing, len(STATS)))], axis=1)


def join(blocks: Sequence[Block]) -> Block:
    """Concatenate blocks, with the sites and the scalars of all of them."""
    if len(blocks) == 1:
        return blocks[0]
    sites = max(block.mean.shape[1] for block in blocks)
    names = tuple(dict.fromkeys(name for block in blocks for name in block.names))
    merged = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in _PLAIN}
    mean = np.concatenate([padded(block.mean, sites) for block in blocks])
    binned = any(block.binned for block in blocks)
    return Block(
        **merged,
        mean=mean,
        low=np.concatenate([padded(block.low, sites) for block in blocks]) if binned else mean,
        high=np.concatenate([padded(block.high, sites) for block in blocks]) if binned else mean,
        seen=np.concatenate([_widened(block.seen, sites) for block in blocks]),
        names=names,
        scalars=np.concatenate([_columns(b.names, b.scalars, names, np.nan) for b in blocks]),
        measured=np.concatenate([_columns(b.names, b.measured, names, 0.0) for b in blocks]),
    )


def amended(block: Block, rows: Mapping[int, Sequence[Mapping[str, Amendment]]]) -> Block:
    """Return a block with scalars added to some of its rows, or replaced in them, by index of the row: for each row
    those of one step or several.

    A row of several steps gets the mean over those in which the scalar was measured, each with its newest value, or the
    sum where steps are added. Its extremes take the new value in, and stay those of the values that were replaced.
    """
    new: dict[str, None] = {}
    for row, steps in rows.items():
        for name in chain.from_iterable(steps):
            new |= dict.fromkeys((name, *ends_of(name)) if block.folded[row] > 1 and ranged(name) else (name,))
    names = tuple(dict.fromkeys([*block.names, *new]))
    place = {name: k for k, name in enumerate(names)}
    scalars = _columns(block.names, block.scalars, names, np.nan).copy()
    measured = _columns(block.names, block.measured, names, 0.0).copy()
    for row, steps in rows.items():
        for name, amendment in chain.from_iterable(late.items() for late in steps):
            at = row, place[name]
            if block.folded[row] > 1:
                scalars[at], measured[at] = _among(float(scalars[at]), float(measured[at]), amendment, name)
                finite = amendment.value if math.isfinite(amendment.value) else math.nan
                for end, extreme in zip(ends_of(name), (np.fmin, np.fmax), strict=True) if ranged(name) else ():
                    scalars[row, place[end]] = extreme(scalars[row, place[end]], finite)
                    measured[row, place[end]] = measured[at] * math.isfinite(scalars[row, place[end]])
            else:
                scalars[at], measured[at] = amendment.value, float(math.isfinite(amendment.value))
    return dataclasses.replace(block, names=names, scalars=scalars, measured=measured)


def _among(scalar: float, count: float, amendment: Amendment, name: str) -> tuple[float, float]:
    """Return the scalar of a row of several steps, and in how many it was finite, after one step was amended."""
    value, before = amendment
    if before is not None and (value == before or (math.isnan(value) and math.isnan(before))):
        return scalar, count
    by_step = 1.0 if summed(name) else count
    total = scalar * by_step if count else 0.0
    if before is not None and math.isfinite(before) and count:
        total, count = total - before, count - 1.0
    if math.isfinite(value):
        total, count = total + value, count + 1.0
    if not count:
        return value, 0.0
    return total if summed(name) else total / count, count


def _widened(seen: Floats32, sites: int) -> Floats32:
    missing = sites - seen.shape[1]
    return np.pad(seen, ((0, 0), (0, missing))) if missing else seen


def _columns(names: tuple[str, ...], values: Floats, wanted: tuple[str, ...], missing: float) -> Floats:
    if names == wanted:
        return values
    laid = np.full((len(values), len(wanted)), missing)
    laid[:, [wanted.index(name) for name in names]] = values
    return laid
