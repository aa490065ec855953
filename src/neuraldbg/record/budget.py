"""The sizes that follow from the byte budget and the number of sites: of the run file, and of what waits in memory.

Shares of the budget (64 MiB unless set otherwise), in stored bytes: 11/32 for the newest tables at full resolution,
3/32 for those of the run's beginning and around events, 1/4 for bins of older ones, 1/16 for the scalars of steps, 1/32
for histograms. The rest is room for blocks that are not yet full, and for the layout. In memory, apart from the file,
1/8 for the steps that wait for the writer and 1/8 for the flight recorder.

Facts and events are not in the budget: at most 4,096 facts of a kind are kept, and the detectors bound the events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.nouns import STATS

if TYPE_CHECKING:
    from neuraldbg.config import RecordSettings

MIB = 1 << 20
BIN = 16
"""Rows of one level that are folded into a row of the next."""
BINS = 256
"""Rows of a level before its oldest are folded into the next: 4,096 steps as bins of 16, 65,536 as bins of 256."""
ROW_BLOCK = 512
"""Rows of a closed block of scalars."""
TABLE_BLOCK = 64
"""Rows of a closed block of tables at most; fewer if they are large: a block takes up to 1/64 of the budget."""
LEVELS = 6
"""Levels of bins in the bound of the file: a row of the sixth holds 16 million steps."""
_PAGES = MIB
"""Bytes for the database's own pages, the layers, and blocks of scalars that are not yet full."""


@dataclass(frozen=True)
class Limits:
    """The limits of one part of the record, scalars or tables, in rows and stored bytes."""

    full_rows: int
    """Newest rows at full resolution."""
    full_bytes: int
    """Bytes of the newest blocks at full resolution."""
    kept_bytes: int
    """Bytes of the first blocks, and of those around events."""
    bin_rows: int
    """Rows of one level of bins."""
    bin_bytes: int
    """Bytes of all levels of bins."""
    block_rows: int
    """Rows of a closed block."""
    fold_rows: int
    """Rows folded at once: whole bins, and few enough tables to take little memory."""


def row_bytes(sites: int) -> int:
    """Return the bytes of one step's table as stored, before constant columns are stored only once."""
    return max(1, sites) * len(STATS) * 4


def bin_bytes(sites: int) -> int:
    """Return the bytes of one row of bins: mean, extremes, and the number of readings of each site."""
    return max(1, sites) * (3 * len(STATS) + 1) * 4


def table_limits(settings: RecordSettings, sites: int) -> Limits:
    """Return the limits of the tables."""
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
    """Return the limits of the scalars."""
    part = settings.budget_mb * MIB // 64
    return Limits(settings.full_steps, 2 * part, part, BINS, part, ROW_BLOCK, 2 * ROW_BLOCK)


def histogram_bytes(settings: RecordSettings) -> int:
    """Return the bytes that histograms may take. The first and the newest are kept even if they take more."""
    return settings.budget_mb * MIB // 32


def file_bound(settings: RecordSettings, sites: int) -> int:
    """Return the bytes that a closed run file takes at most, for a run of any length, without facts and events.

    This is the budget, except for models of so many sites (about 460 with 64 MB) that the rows which are always kept
    take more: two open blocks of tables, the first block, one around an event, and on each level of bins the rows that
    do not yet make a bin of the next. While the run is written, its log (``-wal``) takes up to 16 MiB more.
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
