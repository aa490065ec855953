"""Words and numbers of a run as safe text for a terminal or a picture."""

from __future__ import annotations

import math
import re
from pathlib import Path

GUILTY = "guilty layer, or hit first"
"""Meaning of the sign of a guilty layer, in every face: the first cause may name no layer."""
ZERO = "exactly 0"
"""Text for a layer whose bar has no place on a log axis."""
_NUMBER = re.compile(r"(?<![\w.])([-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)(\s?%)?")
HALF = 0.5 + 1e-9
"""Per cent are often rounded to whole ones."""
_UNSAFE = {0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)}
"""Direction marks, line separators and lone surrogates: they would reorder, break or fail to print the line."""


def plain(text: str, encoding: str = "utf-8", keep: str = "") -> str:
    """Replace control characters, and characters that the encoding does not have, with escapes.

    Names of layers and scripts come from the user's program: they may have any character, and must not control the
    terminal.
    """
    shown = "".join(c if c in keep or _harmless(c) else c.encode("unicode_escape").decode() for c in text)
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def _harmless(char: str) -> bool:
    code = ord(char)
    return code >= 0x20 and not 0x7F <= code < 0xA0 and code not in _UNSAFE


def shortest(file: str) -> str:
    """Return a file's path relative to the working directory if it is below that, else in full."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):  # elsewhere, or the working directory is gone
        return file


def number(value: float | str | None) -> str:
    """Write a number as a person would: 0.00123, 4.2, 12,345, 3.1e-8."""
    if value is None or isinstance(value, str):
        return value or ""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if float(value).is_integer() and abs(value) < 1e6:
        return f"{int(value):,}"
    size = abs(value)
    if 1e-4 <= size < 1e6:
        return f"{value:.3g}" if size < 1e3 else f"{value:,.0f}"
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits.removesuffix('.0')}e{int(power)}"


def says(statement: str, value: float | str, *, rounded: bool = True) -> bool:
    """Return True if a sentence already has a number, within 1 %; a share, also in per cent.

    ``rounded`` allows for half a unit of the last digit of a per cent, for measured values and not for thresholds.
    """
    if isinstance(value, str):
        return value.lower() in statement.lower()
    if not math.isfinite(value):
        return number(value).lower().lstrip("-") in statement.lower()
    shown = number(value).lstrip("-")
    for digits, percent in _NUMBER.findall(statement):
        if not percent and digits.lstrip("+-") == shown:
            return True
        said, meant = abs(float(digits.replace(",", ""))), abs(100.0 * value if percent else value)
        if math.isclose(said, meant, rel_tol=0.01, abs_tol=1e-12) or (
            rounded and percent and abs(said - meant) <= HALF / 10 ** len(digits.partition(".")[2])
        ):
            return True
    return False


def counted(count: int, noun: str) -> str:
    """Write a count with its noun: 1 step, 1,200 steps."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Write a time span as a person would: 0.42 s, 12.3 s, 4 min 10 s, 3 h 5 min."""
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def listed(items: list[str], most: int) -> str:
    """Join names with commas; a long list is cut, with the number left out."""
    more = f" (+{len(items) - most} more: --json)" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def sentence(text: str) -> str:
    """Return the text with a full stop, unless it ends like a sentence already."""
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?", ":")) else f"{text}."
