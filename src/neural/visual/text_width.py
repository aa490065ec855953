"""The room that a text needs, in the widest font that a browser or matplotlib may take: DejaVu Sans.

A picture is laid out before anybody knows the font that shows it.
"""

from __future__ import annotations

import unicodedata

_NARROW = dict.fromkeys("ijlI|.,:;'! ", 0.34) | dict.fromkeys('()[]ftr-/"', 0.41)
_WIDE = dict.fromkeys("mwMW@%\N{HORIZONTAL ELLIPSIS}", 0.99) | dict.fromkeys("=+<>OQNGDHU_", 0.79)
_WIDTHS = _NARROW | _WIDE
"""Widths of characters as shares of the size of the font; of others, `_width`."""


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of a line of text, in the unit of the size of its font."""
    return sum(map(_width, text)) * size * (1.12 if bold else 1.0)


def _width(char: str) -> float:
    if char in _WIDTHS:
        return _WIDTHS[char]
    if unicodedata.east_asian_width(char) in "WF":
        return 1.05
    return 0.7 if char.isupper() else 0.64
