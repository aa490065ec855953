"""Common parts of every page of text in the terminal: width, headings, lists, and safe words.

A page waits for the console, which knows the width and the encoding, and then asks a writer for its parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from neuraldbg.show.format.safe_text import plain
from neuraldbg.show.terminal.marks import ASCII, UNICODE, Marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

WIDEST = 100
"""Columns; longer lines are hard to read."""
LEAST = 40
"""Columns that a page needs."""


@dataclass(frozen=True)
class Writer:
    """The writer that turns words into renderables, with one set of signs and one encoding."""

    marks: Marks
    encoding: str
    width: int

    def heading(self, title: str) -> RenderableType:
        """Return a title with a blank line above it."""
        return Group(Text(), Text(title, style="bold underline" if self.marks is UNICODE else "bold"))

    def item(self, words: str, style: str = "", sign: str = "", sign_style: str = "dim", by: int = 2) -> RenderableType:
        """Return a list item whose further lines are aligned with its first word."""
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=1)
        grid.add_column(ratio=1)
        grid.add_row(Text(sign or self.marks.sigil, style=sign_style), self.text(words, style))
        return Padding(grid, (0, 0, 0, by))

    def cut(self, more: int, by: int = 4) -> Iterator[RenderableType]:
        """Yield a line with the number of items that were left out, if any."""
        if more > 0:
            yield Padding(Text(f"(+{more} more: --json)", style="dim"), (0, 0, 0, by))

    def text(self, words: str, style: str = "") -> Text:
        """Return words of a run as text: never markup, never a control character."""
        return Text(self.clean(words), style=style)

    def clean(self, words: str) -> str:
        """Make words of a run safe for this terminal."""
        return plain(words, self.encoding)


@dataclass(frozen=True)
class Page:
    """Something that a rich console prints, at most ``width`` columns wide."""

    parts: Callable[[Marks, str, int], Iterable[RenderableType]]
    """Gives the parts, once signs, encoding and width are known."""
    width: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, self.width or WIDEST)
        parts = self.parts(ASCII if options.ascii_only else UNICODE, options.encoding, width)
        segments = console.render(Group(*parts), options.update(width=width, highlight=False))
        for line in Segment.split_lines(segments):
            yield from _without_trailing_blanks(line)
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        del console
        return Measurement(min(LEAST, options.max_width), min(options.max_width, self.width or WIDEST))


def _without_trailing_blanks(line: list[Segment]) -> list[Segment]:
    """Remove the padding of tables: piped text should not end in spaces."""
    while line and not line[-1].text.strip(" "):
        line = line[:-1]
    if line:
        last = line[-1]
        line = [*line[:-1], Segment(last.text.rstrip(" "), last.style)]
    return line
