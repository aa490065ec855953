"""The choice of stored blocks to fold: newest, first and those around events stay as they were, others become bins.

Bins hold 16 steps, then 256, 4096 and so on. Their total is bounded, in rows and in bytes, so that a file does not grow
with the run's length.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from neuraldbg.record.budget import BIN, TABLE_BLOCK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from neuraldbg.record.budget import Limits

FIRST = 64
"""Rows from the beginning of a run that are never folded."""
EVENTS = 32
"""Places around events that are never folded: half for the earliest, half for the latest."""
AROUND = 16
"""Steps before and after an event's first step that count as around it."""
MAX_LEVEL = 12
"""Highest level of bins: at 16**12 steps a row no run gets there, and the number fits into 64 bits."""


@dataclass(frozen=True)
class Entry:
    """The columns of a stored block in the database, without its rows."""

    id: int
    level: int
    ordinal: int
    rows: int
    first_step: int
    last_step: int
    size: int
    """Size of the blob in bytes."""


def next_fold(entries: Sequence[Entry], event_steps: Collection[int], limits: Limits) -> tuple[list[Entry], int] | None:
    """Return blocks to fold into one, and the level of the result; None if all parts are within their limits.

    ``entries`` are the closed blocks of one part in order of time, ``event_steps`` the results of ``place_of``.
    """
    expired = _expired(entries, event_steps, limits)
    if _count(expired) >= limits.fold_rows:
        return _oldest(expired, limits.fold_rows), 1
    levels: dict[int, list[Entry]] = {}
    for entry in entries:
        if 0 < entry.level < MAX_LEVEL:
            levels.setdefault(entry.level, []).append(entry)
    for level in sorted(levels):
        if sum(entry.rows for entry in levels[level]) > limits.bin_rows:
            return _oldest(levels[level], min(TABLE_BLOCK, limits.fold_rows)), level + 1
    if sum(entry.size for members in levels.values() for entry in members) <= limits.bin_bytes:
        return None
    foldable = {level: _size(members) for level, members in levels.items() if _count(members) >= BIN}
    if not foldable:
        return None
    # The largest level is folded, so that all end up with equal shares.
    level = max(foldable, key=lambda level: foldable[level])
    return _oldest(levels[level], max(BIN, min(TABLE_BLOCK, _count(levels[level]) // 2))), level + 1


def place_of(step: int) -> int:
    """Round a step down to a multiple of AROUND, so that events close to one another share one place."""
    return step - step % AROUND


def _size(entries: Sequence[Entry]) -> int:
    """Return the bytes of some blocks."""
    return sum(entry.size for entry in entries)


def _count(entries: Sequence[Entry]) -> int:
    """Return the rows of some blocks."""
    return sum(entry.rows for entry in entries)


def _expired(entries: Sequence[Entry], event_steps: Collection[int], limits: Limits) -> list[Entry]:
    """Return the blocks at full resolution that are neither new nor to be kept."""
    full = [entry for entry in entries if entry.level == 0]
    newer = taken = 0
    recent = len(full)
    while recent and newer < limits.full_rows and taken < limits.full_bytes:
        recent -= 1
        newer += full[recent].rows
        taken += full[recent].size
    old = full[:recent]
    if _count(old) < limits.fold_rows:
        return []
    kept = _kept(old, event_steps, limits.kept_bytes)
    return [entry for entry in old if entry.id not in kept]


def _kept(old: Sequence[Entry], event_steps: Collection[int], most: int) -> set[int]:
    """Return the ids of old blocks to keep: the first, then those around events, both while there is room. At least one
    block and one place are kept.
    """
    kept: set[int] = set()
    rows = taken = 0
    for entry in old:
        if rows >= FIRST or (kept and taken + entry.size > most // 2):
            break
        kept.add(entry.id)
        rows += entry.rows
        taken += entry.size
    for number, place in enumerate(_places(event_steps)):
        around = [e for e in old if e.id not in kept and e.first_step <= place + 2 * AROUND]
        around = [e for e in around if place - AROUND <= e.last_step]
        if number and taken + _size(around) > most:
            break
        kept.update(entry.id for entry in around)
        taken += _size(around)
    return kept


def _places(event_steps: Collection[int]) -> Iterator[int]:
    """Iterate over the earliest and the latest places in turn, EVENTS at most."""
    places = sorted(event_steps)
    half = EVENTS // 2
    early, late = places[:half], places[half:][-half:][::-1]
    return (place for place in chain.from_iterable(zip_longest(early, late)) if place is not None)


def _oldest(entries: Sequence[Entry], rows: int) -> list[Entry]:
    taken: list[Entry] = []
    got = 0
    for entry in entries:
        if got >= rows:
            break
        taken.append(entry)
        got += entry.rows
    return taken
