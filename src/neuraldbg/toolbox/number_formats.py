"""The binary floating-point formats of the frameworks: the name of a dtype enters, its limits leave."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class NumberFormat(NamedTuple):
    """A binary floating-point format: a value is a whole multiple of 2**(exponent - digits)."""

    digits: int
    """Bits of the fraction, without the leading one."""
    lowest: int
    """Exponent of the smallest normal number."""
    largest: float
    """Largest finite number."""


FORMATS = {
    "float64": NumberFormat(52, -1022, float(np.finfo(np.float64).max)),
    "float32": NumberFormat(23, -126, float(np.finfo(np.float32).max)),
    "bfloat16": NumberFormat(7, -126, (2 - 2.0**-7) * 2.0**127),
    "float16": NumberFormat(10, -14, 65504.0),
    "float8_e4m3": NumberFormat(3, -6, 240.0),
    "float8_e4m3fn": NumberFormat(3, -6, 448.0),
    "float8_e4m3fnuz": NumberFormat(3, -7, 240.0),
    "float8_e4m3b11fnuz": NumberFormat(3, -10, 30.0),
    "float8_e3m4": NumberFormat(4, -2, 15.5),
    "float8_e5m2": NumberFormat(2, -14, 57344.0),
    "float8_e5m2fnuz": NumberFormat(2, -15, 57344.0),
    "float8_e8m0fnu": NumberFormat(0, -127, 2.0**127),
    "float6_e2m3fn": NumberFormat(3, 0, 7.5),
    "float6_e3m2fn": NumberFormat(2, -2, 28.0),
    "float4_e2m1fn": NumberFormat(1, 0, 6.0),
}  # fmt: skip
"""Formats by the name of the dtype. Source: IEEE 754-2019, Micikevicius et al. 2022 (FP8 formats), and ml_dtypes'
``finfo``, with which the tests compare them."""
_PARTS = {"complex128": "float64", "complex64": "float32", "complex32": "float16"}


def format_of(dtype: str) -> NumberFormat | None:
    """Return the format of a dtype, that of its parts for a complex one; None for whole numbers and unknown ones.

    >>> format_of("bfloat16").digits
    7
    """
    return FORMATS.get(_PARTS.get(dtype, dtype))
