"""The escaping of text for cells of a table that a spreadsheet may open."""

from __future__ import annotations

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "'")
"""First characters of a cell that a spreadsheet runs as a formula, and the apostrophe that marks an escaped cell.
See https://owasp.org/www-community/attacks/CSV_Injection."""


def harmless(text: str) -> str:
    """Escape a text by a leading apostrophe if a spreadsheet would run it as a formula."""
    return f"'{text}" if text.startswith(FORMULAS) else text
