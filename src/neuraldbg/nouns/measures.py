"""Shares, times, sizes and rates as a person would write them, with their units."""

from __future__ import annotations

import math

_DECIMAL = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
UNITS: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")),
    "B": ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    "FLOP": ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1.0, "FLOP")),
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1e3, "kFLOP/s"), (1.0, "FLOP/s")),
}
"""Units of each kind, the largest first, with their size in the unit that names the kind."""
DTYPE_BYTES = {
    "float64": 8, "int64": 8, "complex64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "complex128": 16,
}  # fmt: skip
"""Bytes of an element of a tensor, by the name of its dtype."""


def percent(share: float) -> str:
    """Write a share: 37%."""
    return f"{share:.0%}" if share >= 0.01 or share <= 0 else "<1%"


def unit_of(largest: float, kind: str) -> tuple[float, str]:
    """Return size and name of the unit in which values up to ``largest`` are written: one axis has one unit."""
    units = UNITS[kind]
    return next((one for one in units if math.isfinite(largest) and abs(largest) >= one[0]), units[-1])


def amount(value: float, kind: str) -> str:
    """Write a value in the unit that fits it: 12.3 ms, 4.2 MiB."""
    each, unit = unit_of(float(f"{value:.3g}"), kind)  # as it is written: 999.9 ms are 1 s
    return f"{_short(value / each)} {unit}"


def seconds(value: float) -> str:
    """Write a time with its unit: 1.2 ms."""
    return amount(value, "s")


def count(value: float) -> str:
    """Write a large number with its prefix: 1.2 G."""
    for prefix, size in _DECIMAL:
        if value >= size:
            return f"{_short(value / size)} {prefix}"
    return _short(value)


def flops(value: float) -> str:
    """Write floating-point operations with their unit: 1.2 GFLOP."""
    return amount(value, "FLOP")


def rate(value: float) -> str:
    """Write floating-point operations per second with their unit: 98 GFLOP/s."""
    return amount(value, "FLOP/s")


def size(value: float) -> str:
    """Write bytes with their unit: 3.4 MiB."""
    return amount(value, "B")


def _short(value: float) -> str:
    """Write a number with three digits, and without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
