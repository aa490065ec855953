"""Histograms in the run file: one row a step that has some, and no more of them than there is room for.

A body is the CRC-32 of what follows it, and that is compressed: how many sites and how many counts, the rows of the
sites as differences, the first bin and the number of bins of each, and the counts, little-endian.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns import StepHistograms
from neuraldbg.record.codec import BlobDamaged

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

_HEAD = struct.Struct("<I")
_SIZES = struct.Struct("<II")


def store(db: sqlite3.Connection, fresh: Iterable[StepHistograms], most: int) -> None:
    """Put histograms into the database; where all take more than ``most`` bytes, leave out some of the older ones."""
    rows = [(each.step, encode(each)) for each in fresh]
    if not rows:
        return
    db.executemany("INSERT OR REPLACE INTO histogram (step, body) VALUES (?, ?)", rows)
    sizes = dict(db.execute("SELECT step, length(body) FROM histogram ORDER BY step"))
    while gone := expired(sizes, most):
        db.executemany("DELETE FROM histogram WHERE step = ?", [(step,) for step in gone])
        for step in gone:
            del sizes[step]


def expired(sizes: dict[int, int], most: int) -> Sequence[int]:
    """Return what to leave out of stored histograms, bytes by step in order: every second one of the older half.

    The first and the newest always stay; none goes where all together take at most ``most`` bytes.
    """
    inner = list(sizes)[1:-1]
    return inner[: (len(inner) + 1) // 2 : 2] if sum(sizes.values()) > most else ()


def load(db: sqlite3.Connection) -> tuple[StepHistograms, ...]:
    """Read all of them, in step order; BlobDamaged if one is not whole."""
    return tuple(decode(step, body) for step, body in db.execute("SELECT step, body FROM histogram ORDER BY step"))


def encode(one: StepHistograms) -> bytes:
    """Return the histograms of a step as bytes."""
    parts = (np.diff(one.rows, prepend=0).astype("<u4"), one.first, one.width, one.counts.astype("<u4"))
    sizes = _SIZES.pack(len(one.rows), len(one.counts))
    body = zlib.compress(b"".join([sizes, *(part.tobytes() for part in parts)]))
    return _HEAD.pack(zlib.crc32(body)) + body


def decode(step: int, blob: bytes) -> StepHistograms:
    """Return the histograms in these bytes; BlobDamaged if they are not whole."""
    if len(blob) < _HEAD.size or _HEAD.unpack_from(blob)[0] != zlib.crc32(blob[_HEAD.size :]):
        raise BlobDamaged("a step's histograms fail their checksum")
    body = zlib.decompress(blob[_HEAD.size :])
    sites, counts = _SIZES.unpack_from(body)
    at, found = _SIZES.size, []
    for dtype, count in (("<u4", sites), ("u1", sites), ("u1", sites), ("<u4", counts)):
        found.append(np.frombuffer(body, dtype, count, at))
        at += found[-1].nbytes
    rows, first, width, values = found
    return StepHistograms(step, np.cumsum(rows, dtype=np.int32), first, width, values.astype(np.uint32))
