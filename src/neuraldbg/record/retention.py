"""What is kept of the past: the last steps, the first ones and those around events as they were, the rest as bins.

Bins hold 16 steps, then 256, 4096 and so on. Each level is bounded, so that a file grows with the logarithm of the
run's length. The bounds are in rows, and for models of very many sites in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.nouns import STATS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

BLOCK_ROWS = 64
"""Rows of a closed block. Also the steps that are kept from the beginning of a run."""
BIN = 16
"""Each level folds this many rows of the level below."""
BINS = 256
"""Rows of a level before its oldest are folded into the next: 4,096 steps as bins of 16, 65,536 as bins of 256."""
EVENTS = 32
"""Places around events that are kept as they were: half for the earliest, half for the
latest."""
AROUND = 16
"""Steps before and after an event's first step that count as around it."""
_FULL_BYTES = 128 << 20
_EVENT_BYTES = 32 << 20
_BIN_BYTES = 16 << 20


@dataclass(frozen=True)
class Entry:
    """A stored block, without its rows."""

    id: int
    level: int
    ordinal: int
    rows: int
    first_step: int
    last_step: int


@dataclass(frozen=True)
class Limits:
    """How much is kept, for a model of so many sites."""

    full_rows: int
    event_places: int
    bin_rows: int

    @classmethod
    def of(cls, full_steps: int, sites: int) -> Limits:
        """``full_steps`` is what the user asked for; fewer are kept where they would take more than 128 MiB."""
        row = max(1, sites) * len(STATS) * 4
        return cls(
            full_rows=max(BLOCK_ROWS, min(full_steps, _FULL_BYTES // row)),
            event_places=max(4, min(EVENTS, _EVENT_BYTES // (row * BLOCK_ROWS))),
            bin_rows=max(2 * BLOCK_ROWS, min(BINS, _BIN_BYTES // (3 * row))),
        )


def next_fold(entries: Sequence[Entry], event_steps: Collection[int], limits: Limits) -> tuple[list[Entry], int] | None:
    """Return blocks to fold into one, and the level that they get; None when everything is within its limits.

    ``entries`` are the closed blocks in order of time, ``event_steps`` the places that ``place_of`` gave.
    """
    expired = _expired(entries, event_steps, limits)
    if sum(entry.rows for entry in expired) >= BLOCK_ROWS:
        return _oldest(expired, BLOCK_ROWS), 1
    for level in sorted({entry.level for entry in entries if entry.level > 0}):
        members = [entry for entry in entries if entry.level == level]
        if sum(entry.rows for entry in members) > limits.bin_rows:
            return _oldest(members, BLOCK_ROWS), level + 1
    return None


def place_of(step: int) -> int:
    """Events close to one another share one place."""
    return step - step % AROUND


def _expired(entries: Sequence[Entry], event_steps: Collection[int], limits: Limits) -> list[Entry]:
    """Blocks at full resolution that are old and not protected."""
    full = [entry for entry in entries if entry.level == 0]
    old: list[Entry] = []
    newer = 0
    for entry in reversed(full):
        if newer >= limits.full_rows:
            old.append(entry)
        newer += entry.rows
    if not old:
        return []
    places = sorted(event_steps)
    half = limits.event_places // 2
    kept = places[:half] + places[half:][-half:]
    return [entry for entry in reversed(old) if not _protected(entry, kept)]


def _protected(entry: Entry, places: Sequence[int]) -> bool:
    if entry.ordinal < BLOCK_ROWS:
        return True
    return any(entry.first_step <= place + 2 * AROUND and place - AROUND <= entry.last_step for place in places)


def _oldest(entries: Sequence[Entry], rows: int) -> list[Entry]:
    taken: list[Entry] = []
    for entry in entries:
        if sum(other.rows for other in taken) >= rows:
            break
        taken.append(entry)
    return taken
