"""Footnotes: the explanation of an average leaves the sentence and stands below the text.

The sentences of a diagnosis say behind each average what it is: "32.6 (median of the last 6 losses)". A screen shows
"32.6*", and "* median of the last 6 losses" once, at the end.
"""

from __future__ import annotations

import re

_AVERAGE = re.compile(r" \(((?:lowest )?(?:median|mean) (?:of|over) [^()]*)\)")
_SINGLE = re.compile(r" \((?:last|lowest)(?: finite)? loss\)")
"""Said of an average over one loss, which is the loss itself."""


def brief_averages(text: str) -> str:
    """Return the text with the explanation of each average in one word: "0.0224 (median)"."""
    return _AVERAGE.sub(lambda found: f" ({found[1].removeprefix('lowest ').split()[0]})", _SINGLE.sub("", text))


class Footnotes:
    """The footnotes of one page, each said once."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def without(self, text: str) -> str:
        """Return the text with a mark in place of each explanation of an average."""
        return _AVERAGE.sub(lambda found: self._mark(found[1]), _SINGLE.sub("", text))

    def lines(self) -> list[str]:
        """Return the footnotes, in the order of their marks."""
        return [f"{mark} {note}" for note, mark in self._marks.items()]

    def _mark(self, note: str) -> str:
        return self._marks.setdefault(note, "*" * (len(self._marks) + 1))
