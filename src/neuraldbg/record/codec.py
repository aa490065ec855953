"""The encoding of blocks of rows as bytes, and the decoding of all or some of their columns.

A blob is: the magic ``NDBK``, the CRC-32 of all bytes after it, the length of a JSON header, the header, and the arrays
one after the other, little-endian. An array is stored column by column, so that the values of one statistic of one site
over time are read without the rest. A column that is constant in a block is stored as one value: about half of a site's
statistics (element counts, units, most counts of findings) hardly ever change. On a ConvNet trained on scikit-learn's
digits that leaves 46% of the bytes, as zlib level 1 does in eight times the time; zlib on top leaves 39%, which is not
worth the time that it takes from the training's cores.

The array ``rows`` holds the columns with one value per row, each as 8 bytes, counters minus the row's number. Blobs of
version 1 of the run file, which are still read, hold these as separate arrays, and all arrays row by row.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neuraldbg.record import validation
from neuraldbg.record.row_block import COUNT, Block

if TYPE_CHECKING:
    import numpy.typing as npt

_header_text = json.JSONEncoder(separators=(",", ":")).encode
"""The encoder of ``json`` at import: the program may replace functions of ``json`` by those of another library."""
_MAGIC = b"NDBK"
_HEAD = struct.Struct("<4sI")
_SIZE = struct.Struct("<I")
_COUNTED = ("ordinal", "turn", "steps")
_INTS = (*_COUNTED, "folded", "width", "stream", "applied")
_TABLES = ("mean", "low", "high", "seen")
_DTYPES = {"rows": "<u8", "time": "<f8", "scalars": "<f8", "measured": "<f8", "applied": "|b1",
           **dict.fromkeys(_TABLES, "<f4"), **dict.fromkeys(set(_INTS) - {"applied"}, "<i8")}  # fmt: skip
_PLAIN = (*_INTS, "time")
MOST_ROWS = 4096
"""Rows of a block at most: the writer closes one at 512."""
_MOST_NAMES = 1024
_MOST_STATS = 64


class BlobDamaged(ValueError):
    """Raised for bytes that are not a complete, consistent block."""


def encode(block: Block) -> bytes:
    """Encode a block as bytes. Columns that follow from the values at full resolution are not stored."""
    # Stored in the header: a block of scalars alone has no tables to derive it from.
    binned = block.binned
    arrays: list[tuple[str, str, tuple[int, ...], bytes]] = []
    words = _words(block, binned=binned)
    arrays.append(("rows", "<u8", words.shape[::-1], _pack(words)))
    if block.mean.shape[1]:
        for name in _TABLES if binned else _TABLES[:1]:
            table = getattr(block, name)
            columns = table.reshape(len(table), -1).view("<u4").T
            arrays.append((name, "<f4", table.shape, _pack(columns)))
    header = {
        "layout": 2,
        "names": block.names,
        "binned": binned,
        "sites": block.mean.shape[1:],
        "arrays": [[name, dtype, shape, len(part)] for name, dtype, shape, part in arrays],
    }
    text = _header_text(header).encode()
    body = b"".join([_SIZE.pack(len(text)), text, *(part for *_, part in arrays)])
    return _HEAD.pack(_MAGIC, zlib.crc32(body)) + body


def _words(block: Block, *, binned: bool) -> npt.NDArray[np.uint64]:
    """Return the columns of a block's rows as raw 64-bit words, shape (C, T)."""
    count = len(block.names)
    words = np.empty((len(_INTS) + 1 + count * (1 + binned), len(block)), "<u8")
    ints, floats = words[: len(_INTS)].view("<i8"), words[len(_INTS) :].view("<f8")
    for i, name in enumerate(_INTS):
        ints[i] = getattr(block, name)
    # At full resolution these grow by one per row: minus the row's number they are constant, and stored once.
    ints[: len(_COUNTED)] -= np.arange(len(block))
    floats[0] = block.time
    floats[1 : 1 + count] = block.scalars.T
    if binned:
        floats[1 + count :] = block.measured.T
    return words


def decode(blob: bytes) -> Block:
    """Decode a block. Raises BlobDamaged if the bytes are damaged."""
    return opened(blob).block()


def opened(blob: bytes) -> Blob:
    """Check a block's bytes and header, without decoding the arrays. Raises BlobDamaged if they are damaged."""
    if len(blob) < _HEAD.size:
        raise BlobDamaged("a block is cut short")
    magic, checksum = _HEAD.unpack_from(blob)
    body = memoryview(blob)[_HEAD.size :]
    if magic != _MAGIC or zlib.crc32(body) != checksum:
        raise BlobDamaged("a block fails its checksum")
    start = _SIZE.size + (_SIZE.unpack_from(body)[0] if len(body) >= _SIZE.size else 0)
    if not _SIZE.size < start <= len(body):
        raise BlobDamaged("a block has no header")
    header = validation.parsed(bytes(body[_SIZE.size : start]).decode())
    try:
        arrays = _arrays(header["arrays"], blob, _HEAD.size + start)
        found = Blob(header, arrays)
        _check(found, header, arrays)
    except (AttributeError, LookupError, OverflowError, TypeError) as error:
        raise BlobDamaged(f"a block's header is none ({type(error).__name__}: {error})") from error
    return found


def _arrays(listed: list[Any], blob: bytes, start: int) -> dict[str, _Array]:
    """Return the arrays listed in a header, with their places. Raises BlobDamaged for an impossible dtype or shape."""
    arrays: dict[str, _Array] = {}
    for name, dtype, shape, length in listed:
        if name in arrays or _DTYPES[name] != dtype:
            raise BlobDamaged(f"a block's header lists {name!r} as {dtype!r}")
        sizes = (*shape, length)
        if not 1 <= len(shape) <= 3 or any(type(size) is not int or not 0 <= size <= len(blob) * 8 for size in sizes):
            raise BlobDamaged(f"a block's header claims {name!r} of the shape {shape!r} in {length!r} bytes")
        if shape[0] > MOST_ROWS:
            raise BlobDamaged(f"a block's header claims {shape[0]:,} rows of {name!r}, where {MOST_ROWS:,} is the most")
        arrays[name] = _Array(blob, start, length, dtype, tuple(shape))
        start += length
    if start != len(blob):
        raise BlobDamaged(f"a block's arrays end at byte {start:,} of {len(blob):,}")
    return arrays


def _check(found: Blob, header: dict[str, Any], arrays: dict[str, _Array]) -> None:
    """Raise BlobDamaged unless the names are valid, and the shapes and bytes of all arrays agree."""
    names = header["names"]
    if not isinstance(names, list) or len(names) > _MOST_NAMES or not all(isinstance(name, str) for name in names):
        raise BlobDamaged(f"a block's header names more than {_MOST_NAMES:,} scalars, or something else than text")
    if len(set(names)) != len(names) or not isinstance(found.binned, bool):
        raise BlobDamaged("a block's header names a scalar twice, or is not clear about bins")
    # Sizes first: the shapes below, and the memory that a reader allocates, are computed from them.
    rows, tabled = found.length, "mean" in arrays
    table = (rows, found.sites, found.stats)
    if not 0 <= found.stats <= _MOST_STATS or any(type(size) is not int or not 0 <= size < 1 << 32 for size in table):
        said = f"{validation.short(found.stats)} statistics of as many sites as {validation.short(found.sites)}"
        raise BlobDamaged(f"a block's header claims {said}")
    shapes: dict[str, tuple[int, ...]] = {"mean": table, "low": table, "high": table, "seen": table[:2]}
    if found.old:
        shapes |= dict.fromkeys(_PLAIN, (rows,)) | dict.fromkeys(("scalars", "measured"), (rows, len(names)))
        needed = {*_PLAIN, "scalars", "mean", *(("low", "high", "seen", "measured") if found.binned else ())}
    else:
        shapes["rows"] = (rows, len(_PLAIN) + len(names) * (1 + found.binned))
        needed = {"rows", *((_TABLES if found.binned else _TABLES[:1]) if tabled else ())}
    for name, array in arrays.items():
        if name not in needed or array.shape != shapes[name]:
            raise BlobDamaged(f"a block's {name!r} has the shape {list(array.shape)}, not {list(shapes.get(name, ()))}")
        _check_length(name, array, old=found.old)
    if lacking := needed - arrays.keys():
        raise BlobDamaged(f"a block lacks {min(lacking)!r}")


def _check_length(name: str, array: _Array, *, old: bool) -> None:
    """Raise BlobDamaged unless an array has the number of bytes that follows from its own mask of varying columns."""
    rows, count = array.shape[0], math.prod(array.shape[1:])
    expected, mask = 0, (count + 7) // 8
    if rows * count:
        varies = int(np.unpackbits(np.frombuffer(array.part[:mask], np.uint8))[:count].sum())
        expected = mask + (varies * rows + count - (0 if old else varies)) * np.dtype(array.dtype).itemsize
    if array.length != expected:
        raise BlobDamaged(f"a block's {name!r} has {array.length:,} bytes, not {expected:,}")


class _Array(NamedTuple):
    """The place of an array in a blob, without a view of it, so that it can be pickled."""

    blob: bytes
    start: int
    length: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def part(self) -> memoryview:
        return memoryview(self.blob)[self.start : self.start + self.length]


class Blob:
    """A block of rows that is still encoded; columns, tables or all rows are decoded on request."""

    def __init__(self, header: dict[str, Any], arrays: dict[str, _Array]) -> None:
        self._arrays = arrays
        self._names = tuple(header["names"])
        self.old = header.get("layout", 1) < 2
        self.binned: bool = "low" in arrays if self.old else header["binned"]
        shape = arrays["mean"].shape if self.old else (0, *header["sites"])
        self.sites: int = shape[1]
        self.stats: int = shape[2]
        """Number of statistics of a site."""
        self.length: int = arrays["ordinal" if self.old else "rows"].shape[0]
        """Number of rows."""
        self.scalars = len(self._names)
        """Number of scalars."""
        self._split: dict[str, tuple[npt.NDArray[np.bool_], npt.NDArray[Any], npt.NDArray[Any]]] = {}
        """Tables whose columns were asked for, as the parts that hold them: a bit of each column is a byte here."""
        self._alone: Block | None = None
        """The decoded rows without tables, None before the first request. They are kept: the history of a run that is
        followed is built again with every new block."""

    @property
    def nbytes(self) -> int:
        """Size of the blob in bytes."""
        return len(next(iter(self._arrays.values())).blob)

    def columns(self, name: str, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Decode columns of ``mean``, ``low`` or ``high``, shapes (n,) to (T, n). Column i is statistic i % K of site
        i // K.
        """
        stored = name if self.binned else "mean"
        array = self._arrays[stored]
        dtype, (rows, *inner) = np.dtype(array.dtype), array.shape
        parts = self._split.get(stored)
        if parts is None:
            parts = self._split[stored] = _parts(array.part, dtype, rows, int(np.prod(inner, dtype=np.int64)))
        return _unpack_columns(parts, dtype, rows, wanted)

    def table(self, name: str) -> npt.NDArray[np.float32]:
        """Decode all of ``mean``, ``low`` or ``high``, shape (T, S, K)."""
        array = self._arrays[name if self.binned else "mean"]
        table: npt.NDArray[np.float32] = (_unpack_old if self.old else _unpack)(array)
        return table

    def block(self) -> Block:
        """Decode the whole block."""
        if self.old:
            arrays = {name: _unpack_old(array) for name, array in self._arrays.items()}
        else:
            arrays = self._rows()
            arrays |= {name: _unpack(array) for name, array in self._arrays.items() if name != "rows"}
        rows = len(arrays["ordinal"])
        mean = arrays.setdefault("mean", np.zeros((rows, self.sites, self.stats), np.float32))
        if not self.binned:
            arrays["low"] = arrays["high"] = mean
            arrays["seen"] = (mean[:, :, COUNT] > 0).astype(np.float32)
            arrays["measured"] = np.isfinite(arrays["scalars"]).astype(np.float64)
        elif "low" not in arrays:
            arrays |= {"low": mean.copy(), "high": mean.copy(), "seen": np.zeros((rows, self.sites), np.float32)}
        return Block(names=self._names, **arrays)

    def rows(self) -> Block:
        """Decode all but the tables. Returns a block without sites, the same object each time."""
        if self._alone is None:
            self._alone = self._read_rows()
        return self._alone

    def _read_rows(self) -> Block:
        rows = self._rows()
        none = np.zeros((len(rows["ordinal"]), 0, self.stats), np.float32)
        rows |= {"mean": none, "low": none, "high": none, "seen": none[:, :, 0]}
        if not self.binned:
            rows["measured"] = np.isfinite(rows["scalars"]).astype(np.float64)
        return Block(names=self._names, **rows)

    def _rows(self) -> dict[str, Any]:
        words = _unpack(self._arrays["rows"]).T
        ints = words[: len(_INTS)].view("<i8")
        ints[: len(_COUNTED)] += np.arange(words.shape[1])
        named: dict[str, Any] = dict(zip(_INTS, ints, strict=True))
        named["applied"] = named["applied"].astype(bool)
        floats = words[len(_INTS) :].view("<f8")
        named["time"], count = floats[0], len(self._names)
        named["scalars"] = floats[1 : 1 + count].T
        if self.binned:
            named["measured"] = floats[1 + count : 1 + 2 * count].T
        return named


def _pack(columns: npt.NDArray[Any]) -> bytes:
    """Pack columns, shape (C, T), storing constant ones once. Their dtype is unsigned, so that a NaN equals itself."""
    if columns.size == 0:
        return b""
    varies = (columns != columns[:, :1]).any(axis=1)
    return b"".join([np.packbits(varies).tobytes(), columns[~varies, 0].tobytes(), columns[varies].tobytes()])


def _parts(
    part: memoryview, dtype: np.dtype[Any], rows: int, count: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any], npt.NDArray[Any]]:
    mask = (count + 7) // 8
    varies = np.unpackbits(np.frombuffer(part[:mask], np.uint8), count=count).view(bool)
    still = count - int(varies.sum())
    once = np.frombuffer(part[mask : mask + still * dtype.itemsize], dtype)
    return varies, once, np.frombuffer(part[mask + still * dtype.itemsize :], dtype).reshape(-1, rows)


def _unpack(array: _Array) -> npt.NDArray[Any]:
    dtype, shape = np.dtype(array.dtype), array.shape
    rows, count = shape[0], int(np.prod(shape[1:], dtype=np.int64))
    if rows * count == 0:
        return np.zeros(shape, dtype)
    varies, once, rest = _parts(array.part, dtype, rows, count)
    # A two-dimensional array holds rows without sites, which are used column by column.
    flat = np.empty((count, rows), dtype).T if len(shape) == 2 else np.empty((rows, count), dtype)
    flat[:, ~varies] = once
    flat[:, varies] = rest.T
    return flat.reshape(shape) if len(shape) > 2 else flat


def _unpack_columns(
    parts: tuple[npt.NDArray[np.bool_], npt.NDArray[Any], npt.NDArray[Any]],
    dtype: np.dtype[Any],
    rows: int,
    wanted: npt.NDArray[np.int64],
) -> npt.NDArray[Any]:
    varies, once, rest = parts
    found = np.empty((rows, len(wanted)), dtype)
    if len(wanted) == 1:
        column = int(wanted[0])
        before_it = int(np.count_nonzero(varies[:column]))
        found[:, 0] = rest[before_it] if varies[column] else once[column - before_it]
        return found
    before = np.cumsum(varies)  # varying columns up to this one, itself included
    moving = varies[wanted]
    found[:, moving] = rest[before[wanted[moving]] - 1].T
    found[:, ~moving] = once[wanted[~moving] - before[wanted[~moving]]]
    return found


def _unpack_old(array: _Array) -> npt.NDArray[Any]:
    """Unpack an array of version 1 of the run file: one row for all columns, then the rows of those that vary."""
    dtype, shape, part = np.dtype(array.dtype), array.shape, array.part
    rows, columns = shape[0], int(np.prod(shape[1:], dtype=np.int64))
    if rows * columns == 0:
        return np.zeros(shape, dtype)
    mask = (columns + 7) // 8
    varies = np.unpackbits(np.frombuffer(part[:mask], np.uint8), count=columns).astype(bool)
    once = np.frombuffer(part[mask : mask + columns * dtype.itemsize], dtype)
    rest = np.frombuffer(part[mask + columns * dtype.itemsize :], dtype).reshape(rows, int(varies.sum()))
    flat = np.empty((rows, columns), dtype)
    flat[:] = once
    flat[:, varies] = rest
    return flat.reshape(shape)
