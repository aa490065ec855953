"""The limit of memory: data are held in memory whole, and written beside the model."""

from __future__ import annotations

from neural.errors import DataUnfit

MOST = 2 * 2**30
"""Bytes of all arrays at most."""


def within_memory(size: int, data: str, advice: str) -> None:
    """Raise DataUnfit if data of this many bytes are too large; `data` are the data in words, `advice` what to do."""
    if size > MOST:
        raise DataUnfit(f"{data} take {size / 2**30:,.1f} GiB, and {MOST / 2**30:g} GiB are the most: {advice}")
