"""The histograms in a run file: one row per step that has some, within a number of bytes.

A body is the CRC-32 of the compressed bytes after it. These hold the number of sites, the number of counts, the rows of
the sites as differences, the first bin and the number of bins of each site, and the counts, little-endian.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns import BINS, StepHistograms
from neuraldbg.record import validation
from neuraldbg.record.codec import BlobDamaged
from neuraldbg.record.schema import HISTOGRAMS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

_EARLY = 16
"""The step from which the distance to the next histograms is a share of the step number (50%) instead of 8 steps."""
_PER_BYTE, _FREE = 64, 32 << 20
"""Bytes of memory allowed for each byte in the file, and for any file: zeros pack to a thousandth."""
_HEAD = struct.Struct("<I")
_SIZES = struct.Struct("<II")


def store(db: sqlite3.Connection, fresh: Iterable[StepHistograms], most: int) -> None:
    """Insert histograms into the database, and delete some while all of them take more than ``most`` bytes."""
    rows = [(each.step, encode(each)) for each in fresh]
    if not rows:
        return
    db.executemany("INSERT OR REPLACE INTO histogram (step, body) VALUES (?, ?)", rows)
    sizes = dict(db.execute("SELECT step, length(body) FROM histogram ORDER BY step"))
    while len(sizes) > 2 and sum(sizes.values()) > most:
        gone = expendable(list(sizes))
        db.execute("DELETE FROM histogram WHERE step = ?", (gone,))
        del sizes[gone]


def expendable(steps: Sequence[int]) -> int:
    """Return the step to delete of three or more: the one whose neighbours are closest together, never the first or the
    newest.

    Steps with histograms are a constant number apart at first, later a constant share of their number. By the logarithm
    of ``step + _EARLY`` they are equally far apart, so that every second one is deleted, the oldest first, before any
    of the rest.
    """
    places = np.log(np.asarray(steps, np.float64) + _EARLY)
    return steps[1 + int(np.argmin(np.round(places[2:] - places[:-2], 1)))]


def load(db: sqlite3.Connection, known: tuple[StepHistograms, ...] = ()) -> tuple[StepHistograms, ...]:
    """Read all histograms in step order, decoding only those that are not ``known``. Returns ``known`` itself if
    nothing has changed, and () for files of older versions. Raises BlobDamaged if one is damaged.
    """
    if db.execute("PRAGMA user_version").fetchone()[0] < HISTOGRAMS:
        return ()
    found = {each.step: each for each in known}
    steps = [step for (step,) in db.execute("SELECT step FROM histogram ORDER BY step")]
    if steps == list(found):
        return known
    (sites,) = db.execute("SELECT count(*) FROM site").fetchone()
    packed = unpacked = 0
    for step in steps:
        if step not in found:
            (body,) = db.execute("SELECT body FROM histogram WHERE step = ?", (step,)).fetchone()
            found[step] = decode(validation.step(step, "histogram.step"), body, sites)
            packed, unpacked = packed + len(body), unpacked + found[step].nbytes
            if unpacked > _FREE + _PER_BYTE * packed:
                raise BlobDamaged(f"{packed:,} bytes of histograms unpack to {unpacked:,}")
    return tuple(found[step] for step in steps)


def encode(one: StepHistograms) -> bytes:
    """Encode the histograms of a step as bytes."""
    parts = (np.diff(one.rows, prepend=0).astype("<u4"), one.first, one.width, one.counts.astype("<u4"))
    sizes = _SIZES.pack(len(one.rows), len(one.counts))
    body = zlib.compress(b"".join([sizes, *(part.tobytes() for part in parts)]))
    return _HEAD.pack(zlib.crc32(body)) + body


def decode(step: int, blob: bytes, most: int) -> StepHistograms:
    """Decode the histograms of a step, of at most ``most`` sites. Raises BlobDamaged if the bytes are damaged."""
    if len(blob) < _HEAD.size or _HEAD.unpack_from(blob)[0] != zlib.crc32(blob[_HEAD.size :]):
        raise BlobDamaged("a step's histograms fail their checksum")
    try:
        return _decoded(step, blob[_HEAD.size :], most)
    except (zlib.error, struct.error, ValueError) as error:
        raise BlobDamaged(f"a step's histograms are not whole ({error})") from error


def _decoded(step: int, packed: bytes, most: int) -> StepHistograms:
    unpacking = zlib.decompressobj()
    # Limited to the bytes that ``most`` sites can need: a few bytes may unpack to gigabytes.
    body = unpacking.decompress(packed, _SIZES.size + most * (4 + 1 + 1 + 4 * BINS))
    sites, counts = _SIZES.unpack_from(body)
    if not unpacking.eof or sites > most or len(body) != _SIZES.size + 6 * sites + 4 * counts:
        raise ValueError("their length is another one")
    at, found = _SIZES.size, []
    for dtype, count in (("<u4", sites), ("u1", sites), ("u1", sites), ("<u4", counts)):
        found.append(np.frombuffer(body, dtype, count, at))
        at += found[-1].nbytes
    rows, first, width, values = found
    places = np.cumsum(rows, dtype=np.int64)
    if len(places) and places[-1] >= most:
        raise ValueError("they are of sites that there are not")
    return StepHistograms(step, places.astype(np.int32), first, width, values.astype(np.uint32))
