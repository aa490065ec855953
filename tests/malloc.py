"""How much memory malloc has given out: resident memory rises and falls by tens of MB with what it keeps of what is
freed.
"""

from __future__ import annotations

import ctypes


class _Told(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


TELLS = hasattr(ctypes.CDLL(None), "mallinfo2")
"""Whether this C library says it (glibc 2.33 and later)."""


def given_out() -> int:
    """Return the bytes that are given out: Python's pools for small objects among them, free pages of its heaps not."""
    asked = ctypes.CDLL(None).mallinfo2
    asked.restype = _Told
    told = asked()
    return int(told.uordblks + told.hblkhd)
