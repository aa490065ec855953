"""Seconds, bytes and floating-point operations in the unit that fits, alike in every picture, table and sentence."""

from __future__ import annotations

from neuraldbg.nouns import measures
from neuraldbg.nouns.measures import unit_of

__all__ = ["amount", "per_cent", "unit_of"]


def amount(value: float | None, kind: str) -> str:
    """Write a value in the unit that fits it, by ``measures.UNITS``: 12.3 ms, 4.2 MiB; "" if there is none."""
    return "" if value is None else measures.amount(value, kind)


def per_cent(part: float | None, whole: float | None) -> str:
    """Write a part of a whole in per cent, with a digit below 10; "" if one of them is not known."""
    if part is None or not whole:
        return ""
    share = 100 * part / whole
    if share >= 9.95 or share == 0:
        return f"{share:.0f}%"
    return f"{share:.1f}%" if share >= 0.05 else "<0.1%"
