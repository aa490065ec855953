"""The choices of a search: the text of a file and its searches enter; labels, and the text with values leave."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neural.layers.parameter import value_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from neural.errors import Span
    from neural.plan import Search

_NAMED = re.compile(r"(\w+)\s*[:=]\s*$")
_CALLED = re.compile(r"(\w+)\s*\([^()]*$")
_LAYER = re.compile(r"^\w+ \(line (\d+), column (\d+)\)$")
"""A layer as a choice of layers names it."""


@dataclass
class Chosen:
    """Collect what one trial chooses, as the `choose` of a check: a place is asked once for each of its uses."""

    text: str
    """The text of the file."""
    propose: Callable[[str, Search], Any]
    """Return a value for a label and what it may be."""
    values: dict[str, Any] = field(default_factory=dict)
    """Values for people, by label."""
    taken: dict[Span, Any] = field(default_factory=dict)
    _asked: dict[Span, list[tuple[Search, Any]]] = field(default_factory=dict)

    def choose(self, search: Search) -> Any:
        """Return the value of this trial. A macro that is used twice has the same one, unless its ranges differ."""
        asked = self._asked.setdefault(search.span, [])
        for known, value in asked:
            if (known.kind, known.values) == (search.kind, search.values):
                return value
        label = self._label(search.span, len(asked))
        value = self.propose(label, search)
        asked.append((search, value))
        self.values[label] = _in_short(value)
        self.taken.setdefault(search.span, value)
        return value

    def _label(self, span: Span, again: int) -> str:
        """Return the name before the place in the file, or the layer around it, with its line if others have it."""
        before = self.text[: _offset(self.text, span.line, span.column)]
        found = _NAMED.search(before) or _CALLED.search(before)
        label = found[1] if found else "layer"
        if again:
            label += f" ({again + 1})"
        if label in self.values:
            label += f" line {span.line}"
        while label in self.values:
            label += f":{span.column}"
        return label

    def source(self) -> str:
        """Return the lines of the file that this trial changes, with its values in their places."""
        spans = sorted(self.taken)
        lines, done = [], 0
        for span in spans:
            if span.line <= done:
                continue
            # Two places in one line, or a place of several lines, are one piece.
            last = span.end_line
            for other in spans:
                last = max(last, other.end_line) if span.line <= other.line <= last else last
            start, end = _offset(self.text, span.line, 1), _offset(self.text, last + 1, 1)
            lines.append(self._rendered(start, end).rstrip("\n"))
            done = last
        return "\n".join(lines)

    def _rendered(self, start: int, end: int) -> str:
        parts, at = [], start
        for span in sorted(self.taken):
            first = _offset(self.text, span.line, span.column)
            after = _offset(self.text, span.end_line, span.end_column)
            if first < at or after > end:
                continue
            parts += [self.text[at:first], self._replaced(span)]
            at = after
        return "".join([*parts, self.text[at:end]])

    def _replaced(self, span: Span) -> str:
        value = self.taken[span]
        layer = _LAYER.match(value) if isinstance(value, str) else None
        if layer is None:
            return value_words(value)
        start = _offset(self.text, int(layer[1]), int(layer[2]))
        return self._rendered(start, _call_end(self.text, start))


def _in_short(value: Any) -> Any:
    layer = _LAYER.match(value) if isinstance(value, str) else None
    return value.split(" ", 1)[0] if layer else value


def _offset(text: str, line: int, column: int) -> int:
    """Return the place of a line and a column, which count from 1, in a text."""
    at = 0
    for _ in range(line - 1):
        after = text.find("\n", at)
        if after < 0:
            return len(text)
        at = after + 1
    return min(at + column - 1, len(text))


def _call_end(text: str, start: int) -> int:
    """Return the end of a name with its arguments."""
    found = re.compile(r"\w+\s*").match(text, start)
    at = found.end() if found else start
    if at >= len(text) or text[at] != "(":
        return at
    depth = 0
    quote = ""
    for place in range(at, len(text)):
        char = text[place]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        else:
            depth += (char == "(") - (char == ")")
            if depth == 0:
                return place + 1
    return len(text)
