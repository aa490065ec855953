"""Blocks of rows to bytes and back.

A blob is: the magic ``NDBK``, the CRC-32 of all that follows it, the length of a JSON header, the header, and the
arrays one after the other, raw and little-endian. The columns of an array that do not change over its rows are stored
once: about half of a site's statistics (element counts, units, most counts of findings) hardly ever do. On a ConvNet
trained on scikit-learn's digits that leaves 46% of the bytes, as zlib level 1 does in eight times the time; zlib on top
leaves 39%, which is not worth what it takes from the training's cores.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.record.block import COUNT, Block

if TYPE_CHECKING:
    import numpy.typing as npt

_MAGIC = b"NDBK"
_HEAD = struct.Struct("<4sI")
_SIZE = struct.Struct("<I")
_PLAIN = ("ordinal", "turn", "folded", "steps", "width", "time", "stream", "applied", "scalars")
_BINNED = ("low", "high", "seen", "measured")


class BlobDamaged(ValueError):
    """The bytes are no whole block."""


def encode(block: Block) -> bytes:
    """Return the block as bytes; what can be told from the full-resolution values is not stored."""
    arrays = {name: getattr(block, name) for name in (*_PLAIN, "mean", *(_BINNED if block.binned else ()))}
    parts = [_pack(array) for array in arrays.values()]
    header = {
        "names": block.names,
        "arrays": [
            [name, array.dtype.newbyteorder("<").str, array.shape, len(part)]
            for (name, array), part in zip(arrays.items(), parts, strict=True)
        ],
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join([_SIZE.pack(len(text)), text, *parts])
    return _HEAD.pack(_MAGIC, zlib.crc32(body)) + body


def decode(blob: bytes) -> Block:
    """Return the block in these bytes; BlobDamaged if they are not whole."""
    if len(blob) < _HEAD.size:
        raise BlobDamaged("a block is cut short")
    magic, checksum = _HEAD.unpack_from(blob)
    body = memoryview(blob)[_HEAD.size :]
    if magic != _MAGIC or zlib.crc32(body) != checksum:
        raise BlobDamaged("a block fails its checksum")
    start = _SIZE.size + _SIZE.unpack_from(body)[0]
    header = json.loads(bytes(body[_SIZE.size : start]))
    arrays: dict[str, Any] = {}
    for name, dtype, shape, length in header["arrays"]:
        arrays[name] = _unpack(body[start : start + length], np.dtype(dtype), tuple(shape))
        start += length
    if "low" not in arrays:
        mean = arrays["mean"]
        arrays["low"] = arrays["high"] = mean
        arrays["seen"] = (mean[:, :, COUNT] > 0).astype(np.float32)
        arrays["measured"] = np.isfinite(arrays["scalars"]).astype(np.float64)
    return Block(names=tuple(header["names"]), **arrays)


def _pack(array: npt.NDArray[Any]) -> bytes:
    flat = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).reshape(len(array), -1)
    # Compared as bits, so that a NaN equals itself.
    bits = flat.view(f"u{flat.dtype.itemsize}")
    if flat.size == 0:
        return b""
    varies = (bits != bits[0]).any(axis=0)
    return b"".join([np.packbits(varies).tobytes(), flat[0].tobytes(), flat[:, varies].tobytes()])


def _unpack(part: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
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
