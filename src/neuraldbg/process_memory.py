"""The resident memory of this process, as the system tells it: no torch, and no device, is needed for it.

``/proc/self/statm`` is opened at each reading: a descriptor that is kept may be closed by the program, and its number
given to a file of the program.
"""

from __future__ import annotations

import os
import sys
from io import FileIO

_STATM = "/proc/self/statm"
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


def resident_bytes() -> int | None:
    """Return the bytes of memory that the process has resident; None if the system does not tell them in a file, as
    elsewhere than on Linux.
    """
    try:
        # A file object: a descriptor would stay open if a time limit of the program raised before the next line.
        with FileIO(_STATM) as file:
            return int(file.read(64).split(maxsplit=2)[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return None


def resident_or_most() -> float:
    """Return the bytes that the process has resident; where the system does not tell them, the most that ever were; NaN
    if it tells neither.
    """
    now = resident_bytes()
    return float(now) if now is not None else _most()


def _most() -> float:
    try:
        import resource  # noqa: PLC0415 (not on Windows)
    except ImportError:
        return float("nan")
    peak = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return peak if sys.platform == "darwin" else peak * 1024
