"""Any text of ours as a cell of a table that a spreadsheet may open."""

from __future__ import annotations

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "'")
"""A cell that begins so is run by a spreadsheet; one with an apostrophe is taken for one that was made harmless.
See https://owasp.org/www-community/attacks/CSV_Injection."""


def harmless(text: str) -> str:
    """Return text that no spreadsheet runs as a formula: with an apostrophe in front where it would."""
    return f"'{text}" if text.startswith(FORMULAS) else text
