"""What a byte budget buys, for a model of so many sites: how much is kept in the run file, how much waits in memory.

Shares of the budget (64 MiB unless set otherwise), in stored bytes: 11/32 for the newest tables at full resolution,
3/32 for those of the run's beginning and around events, 1/4 for bins of older ones, 1/16 for the scalars of steps, 1/32
for histograms. The rest is room for blocks that are not yet full, and for the layout. In memory, apart from the file,
1/8 for the steps that wait for the writer and 1/8 for the flight recorder.

Facts and events come on top: at most 4,096 facts of a kind are kept, and the detectors bound the events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.nouns import STATS

if TYPE_CHECKING:
    from neuraldbg.config import RecordSettings

MIB = 1 << 20
BIN = 16
"""Each level folds this many rows of the level below."""
BINS = 256
"""Rows of a level before its oldest are folded into the next: 4,096 steps as bins of 16, 65,536 as bins of 256."""
ROW_BLOCK = 512
"""Rows of a closed block of scalars."""
TABLE_BLOCK = 64
"""Rows of a closed block of tables, at most; where they are large, so many that it takes 1/64 of the budget."""
LEVELS = 6
"""Levels of bins that the bound reckons with: the sixth stands for 16 million steps a row."""
_PAGES = MIB
"""The database's own pages, the layers, and blocks of scalars that are not yet full."""


@dataclass(frozen=True)
class Limits:
    """How much is kept of one part of the record, in bytes as stored."""

    full_rows: int
    full_bytes: int
    """The newest blocks at full resolution."""
    kept_bytes: int
    """The first blocks, and those around events."""
    bin_rows: int
    """Of one level."""
    bin_bytes: int
    """Of all levels."""
    block_rows: int
    """Of a closed block."""
    fold_rows: int
    """Rows folded at once: whole bins, and of tables not so many that they take much memory."""


def row_bytes(sites: int) -> int:
    """Bytes of one step's table as stored, before what does not vary is left out."""
    return max(1, sites) * len(STATS) * 4


def bin_bytes(sites: int) -> int:
    """Bytes of one row of bins: mean, extremes, and how often each site was seen."""
    return max(1, sites) * (3 * len(STATS) + 1) * 4


def table_limits(settings: RecordSettings, sites: int) -> Limits:
    """Return what is kept of the tables."""
    budget = settings.budget_mb * MIB
    rows = max(BIN, min(TABLE_BLOCK, budget // 64 // row_bytes(sites) // BIN * BIN))
    return Limits(
        full_rows=settings.full_steps,
        full_bytes=budget * 11 // 32,
        kept_bytes=budget * 3 // 32,
        bin_rows=BINS,
        bin_bytes=budget // 4,
        block_rows=rows,
        fold_rows=min(TABLE_BLOCK, 2 * rows),
    )


def scalar_limits(settings: RecordSettings) -> Limits:
    """Return what is kept of the scalars."""
    part = settings.budget_mb * MIB // 64
    return Limits(settings.full_steps, 2 * part, part, BINS, part, ROW_BLOCK, 2 * ROW_BLOCK)


def histogram_bytes(settings: RecordSettings) -> int:
    """Return the bytes that histograms may take, unless the first and the newest alone take more."""
    return settings.budget_mb * MIB // 32


def file_bound(settings: RecordSettings, sites: int) -> int:
    """Return the bytes that a closed run file takes at most, for a run of any length; facts and events come on top.

    It is the budget, but for models of so many sites (about 600 with 64 MB) that the rows which are always kept
    take more: two open blocks of tables, the first block, one around an event, and on each level of bins as many rows
    as do not yet make a bin of the next. While the run is written, its log (``-wal``) takes up to 16 MiB more.
    """
    budget, limits = settings.budget_mb * MIB, table_limits(settings, sites)
    shares = limits.full_bytes + limits.kept_bytes + limits.bin_bytes + budget // 16 + histogram_bytes(settings)
    blocks = (2 * limits.block_rows + 2 * limits.fold_rows) * row_bytes(sites)
    bins = LEVELS * (BIN - 1) * bin_bytes(sites)
    return max(budget, shares + blocks + bins + _PAGES)


def queue_bytes(settings: RecordSettings) -> int:
    """Return the bytes of steps that may wait for the writer."""
    return settings.budget_mb * MIB // 8


def ring_bytes(settings: RecordSettings) -> int:
    """Return the bytes of tables that the flight recorder may hold."""
    return settings.budget_mb * MIB // 8
