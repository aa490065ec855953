"""The errors that the `.neural` language raises on purpose, as one tree.

    NeuralError
    ├── FileUnreadable     no file, no text, or an extension of another language
    ├── ConfigUnreadable   the file of settings, or a key or value in it
    ├── SourceError        something in the text of a file; carries one Problem for each place
    │   ├── SyntaxFault    the text is not of the language
    │   └── CheckFailed    the text can be read, and no model can be made of it
    ├── DataUnfit          no data, or data that cannot be read or brought to fit a network
    ├── MissingPackage     a package of an extra, or of a backend, is not installed
    ├── NotDebugged        a backend that cannot be debugged, or run
    ├── NotExported        a network that has no form in another format
    └── UnknownBackend     a name of no backend

A `Problem` prints as a screen: file, line and column, the line with a caret, what was expected, the nearest name.
"""

from __future__ import annotations

import difflib
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDTH = 110
"""The longest part of a source line that a screen shows."""


@dataclass(frozen=True, order=True)
class Span:
    """Hold the place of a piece of text: lines and columns count from 1, and the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def start(self) -> tuple[int, int]:
        return (self.line, self.column)

    @property
    def end(self) -> tuple[int, int]:
        return (self.end_line, self.end_column)

    def to(self, other: Span) -> Span:
        """Return the span from the start of this one to the end of `other`."""
        return Span(self.line, self.column, other.end_line, other.end_column)


@dataclass(frozen=True)
class Problem:
    """Describe one thing that is wrong with a file, and where."""

    message: str
    """One sentence without a full stop."""
    file: str
    """The path or name of the file, as it was given."""
    span: Span
    """The text that is meant."""
    source_line: str
    """The line of the file at `span.line`."""
    expected: str = ""
    """Words for what could stand there, "" if nothing is to be said."""
    suggestion: str = ""
    """The nearest name, "" if none is near."""
    trail: tuple[str, ...] = ()
    """Where the text is used, from the inside out: one sentence for each macro."""

    def screen(self) -> str:
        """Return the problem as lines for a terminal."""
        lines = [f"{self.file}:{self.span.line}:{self.span.column}: {self.message}"]
        if self.source_line.strip():
            lines += self._quoted()
        if self.expected:
            lines += textwrap.wrap(
                f"  expected: {self.expected}", WIDTH, subsequent_indent="    ", break_on_hyphens=False
            )
        if self.suggestion:
            lines.append(f"  did you mean: {self.suggestion}?")
        lines += [f"  {step}" for step in self.trail]
        return "\n".join(lines)

    def _quoted(self) -> list[str]:
        text = self.source_line.rstrip().replace("\t", " ")  # one column for each character, as the caret counts
        start = self.span.column - 1
        if self.span.end_line == self.span.line:
            end = max(self.span.end_column - 1, start + 1)
        else:
            end = max(len(text), start + 1)
        # A line of a thousand characters is shown around its fault.
        cut = max(0, start - WIDTH // 2) if len(text) > WIDTH else 0
        shown = "".join(char if char.isprintable() else "?" for char in text[cut : cut + WIDTH])
        length = max(1, min(end - start, len(shown) - (start - cut)))
        number = str(self.span.line)
        margin = " " * len(number)
        return [f"  {number} | {shown}", f"  {margin} | {' ' * (start - cut)}{'^' * length}"]


class NeuralError(Exception):
    """The root: `except NeuralError` catches every error that the package `neural` raises on purpose."""


class FileUnreadable(NeuralError, OSError):
    """Raised if a path leads to no text of the language."""


class ConfigUnreadable(NeuralError, ValueError):
    """Raised if a `neural_config.yaml` holds what is no setting."""


class DataUnfit(NeuralError, ValueError):
    """Raised if there are no data, or if they cannot be read or brought to fit a network."""


class MissingPackage(NeuralError, ImportError):
    """Raised if a package is not installed; `install` is what follows `pip install`."""

    def __init__(
        self, package: str, install: str = "'neuraldbg[neural]'", purpose: str = "reading .neural files"
    ) -> None:
        super().__init__(f"{purpose} needs the package {package}: pip install {install}")


class NotDebugged(NeuralError, ValueError):
    """Raised if a backend cannot do what is asked of it."""


class NotExported(NeuralError, ValueError):
    """Raised if a network cannot be written in another format."""


class UnknownBackend(NeuralError, ValueError):
    """Raised for a name of no backend."""


class SourceError(NeuralError, ValueError):
    """Raised for faults in the text of a file; `problems` holds the first of them in order of the lines, and `more` is
    the number of those after them.
    """

    def __init__(self, problems: Iterable[Problem], more: int = 0) -> None:
        self.problems = tuple(problems)
        self.more = more
        super().__init__("\n\n".join(problem.screen() for problem in self.problems))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.problems, self.more))


class SyntaxFault(SourceError):
    """Raised if a text is not of the language."""


class CheckFailed(SourceError):
    """Raised if a text is of the language and describes no model that can be made."""


@dataclass
class Sources:
    """Make problems for one file: keep its name and its lines."""

    file: str
    text: str
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = self.text.split("\n")

    def problem(
        self, message: str, span: Span, *, expected: str = "", suggestion: str = "", trail: tuple[str, ...] = ()
    ) -> Problem:
        """Return a problem at a place of this file."""
        line = self.lines[span.line - 1] if span.line <= len(self.lines) else ""
        return Problem(message, self.file, span, line, expected, suggestion, trail)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like `name` in any case, "" if none is like it."""
    by_lower = {each.lower(): each for each in known}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    said = name.lower()[:60]
    found = difflib.get_close_matches(said, by_lower, n=8, cutoff=0.6)
    # One slip of the fingers comes first: `adma` is as like Adamax as Adam.
    return by_lower[next((one for one in found if _one_slip(said, one)), found[0])] if found else ""


def _one_slip(said: str, known: str) -> bool:
    """Return True if one letter is missing, too many or another one, or if two neighbours have changed places."""
    start = 0
    while start < min(len(said), len(known)) and said[start] == known[start]:
        start += 1
    mine, other = said[start:], known[start:]
    swapped = mine[:2] == other[:2][::-1] and mine[2:] == other[2:]
    return swapped or mine[1:] == other or mine == other[1:] or mine[1:] == other[1:]
