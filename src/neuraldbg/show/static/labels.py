"""Words of a run as labels that fit: measured with the font that draws them, wrapped, and cut with an ellipsis."""

from __future__ import annotations

from functools import lru_cache

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import text_to_path

from neuraldbg.show.format.safe_text import plain

POINTS = 72.0
"""Number of points in an inch."""
ROUNDED = 1.07
"""Largest factor by which text is wider in pictures of 100 dots an inch, where each sign has a whole number of dots."""


def literal(text: str) -> str:
    """Return text that is drawn as it is: no mathematics between dollar signs, nothing that the font cannot draw."""
    return _clean(text).replace("$", r"\$")


def fitted(text: str, width_in: float, size: float, *, lines: int = 1, bold: bool = False) -> str:
    """Return the text as a label of at most ``lines`` lines of a width; text that does not fit ends in an ellipsis."""
    made: list[str] = []
    line = ""
    for given in _clean(text).split(" "):
        word = given
        both = f"{line} {word}".strip()
        if width_of(both, size, bold=bold) <= width_in:
            line = both
            continue
        if line:
            made.append(line)
        while len(made) < lines and width_of(word, size, bold=bold) > width_in and len(word) > 1:
            most = _break(word, _most(word, width_in, size, bold=bold))
            made.append(word[:most])
            word = word[most:]
        line = word
    made.append(line)
    if len(made) > lines:
        last = f"{made[lines - 1]} {made[lines]}"
        most = _most(last, width_in - width_of(" …", size, bold=bold), size, bold=bold)
        made = [*made[: lines - 1], f"{last[:most].rstrip()}…"]
    return "\n".join(made).replace("$", r"\$")


@lru_cache(maxsize=4096)
def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of a line of text in inches."""
    font = FontProperties(size=size, weight="bold" if bold else "normal")
    if not text:
        return 0.0
    return ROUNDED * float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]) / POINTS


def _most(word: str, width_in: float, size: float, *, bold: bool) -> int:
    """Return the number of characters of a word that fit, at least one."""
    low, high = 1, len(word)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if width_of(word[:middle], size, bold=bold) <= width_in else (low, middle - 1)
    return low


def _break(word: str, most: int) -> int:
    """Return where to break a word of which so many characters fit: behind a dot or the like in its second half."""
    return next((at for at in range(most, most // 2, -1) if word[at - 1] in "._-/"), most)


def _clean(text: str) -> str:
    glyphs = _glyphs()
    return "".join(c if ord(c) in glyphs else c.encode("unicode_escape").decode() for c in plain(text))


@lru_cache(maxsize=1)
def _glyphs() -> frozenset[int]:
    """Return the characters that the font has; others would be drawn as empty boxes, each with a warning."""
    return frozenset(get_font(findfont(FontProperties())).get_charmap())
