"""Lines as cells of a terminal: Braille dots, or the letter of each line where there is only ASCII.

Own code and not plotext, which the rest of the field uses: its version 6 ends the process (std::bad_alloc) at a NaN in
a line and keeps one figure for the whole program, and its versions 5 and 6 have no call in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.terminal.frame import in_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from neuraldbg.show.axes.ticks import Axis
    from neuraldbg.show.forms import Floats, Ints
    from neuraldbg.show.terminal.marks import Marks

BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
"""Bit of each dot of a cell, in the Unicode block of Braille."""
BRAILLE = 0x2800
LETTERS_EACH = 3
"""Number of times that a line is named."""


class Canvas:
    """A canvas of cells that pens draw on; later pens cover earlier ones."""

    def __init__(self, width: int, height: int, marks: Marks) -> None:
        self.width, self.height, self._marks = width, height, marks
        self._fine = (4, 2) if marks.dots else (1, 1)
        self._dots = np.zeros((height * self._fine[0], width * self._fine[1]), bool)
        self._owner = np.full((height, width), -1)
        self._pens: list[tuple[str, str]] = []
        self._signs: dict[tuple[int, int], tuple[str, str]] = {}

    def line(self, x: Floats | Ints, y: Floats, across: Axis, up: Axis, letter: str, style: str) -> None:
        """Join the points that follow each other; where one of them is not finite the line breaks."""
        pen = self._pen(letter, style)
        column, row = across.place(x, self._dots.shape[1]), self._row(up, y)
        there = (column >= 0) & (row >= 0)
        self._set(row[there], column[there], pen)
        both = there[:-1] & there[1:]
        self._join(np.stack([column[:-1], row[:-1], column[1:], row[1:]], axis=1)[both], pen)

    def band(self, x: Floats | Ints, low: Floats, high: Floats, across: Axis, up: Axis, style: str) -> None:
        """Fill between two lines with every other dot, and only where nothing is drawn yet."""
        pen = self._pen(self._marks.unread, style)
        column, top, bottom = across.place(x, self._dots.shape[1]), self._row(up, high), self._row(up, low)
        for c in np.unique(column[(column >= 0) & (top >= 0) & (bottom >= 0)]).tolist():
            here = (column == c) & (top >= 0) & (bottom >= 0)
            rows = np.arange(top[here].min(), bottom[here].max() + 1)
            rows = rows[(rows + c) % 2 == 0] if self._marks.dots else rows
            cells = rows // self._fine[0], np.full(len(rows), c // self._fine[1])
            free = self._owner[cells] < 0
            self._dots[rows, c] |= free | (self._owner[cells] == pen)
            self._owner[cells[0][free], cells[1][free]] = pen

    def upright(self, x: float, across: Axis, sign: str, style: str) -> None:
        """Draw from top to bottom through the cells that are free."""
        (c,) = across.place(np.array([x]), self.width).tolist()
        for r in range(self.height):
            if self._owner[r, c] < 0:
                self._signs.setdefault((r, c), (sign, style))

    def name_lines(self, letters: Sequence[str]) -> None:
        """Write the letters of pens at some points of their lines, so that they can be read without colour."""
        if not self._marks.dots:
            return
        for pen, (letter, style) in enumerate(self._pens):
            if letter not in letters:
                continue
            columns = np.flatnonzero((self._owner == pen).any(axis=0))
            offset = (pen * self.width) // (LETTERS_EACH * max(1, len(self._pens)))
            for i in range(LETTERS_EACH if len(columns) else 0):
                place = (offset + i * len(columns) // LETTERS_EACH) % len(columns)
                c = int(columns[place])
                r = int(np.flatnonzero(self._owner[:, c] == pen)[0])
                self._signs[r, c] = (letter, f"bold {style}".strip())

    def rows(self) -> list[Text]:
        """Return the cells, top to bottom, each row exactly as wide as the canvas."""
        tall, wide = self._fine
        blocks = self._dots.reshape(self.height, tall, self.width, wide)
        bits = (blocks * BITS[None, :, None, :]).sum(axis=(1, 3)) if self._marks.dots else None
        found = []
        for r in range(self.height):
            line = []
            for c in range(self.width):
                pen = int(self._owner[r, c])
                letter, style = self._pens[pen] if pen >= 0 else (" ", "")
                if bits is not None and pen >= 0:
                    letter = chr(BRAILLE + int(bits[r, c]))
                line.append(self._signs.get((r, c), (letter, style)))
            found.append(in_runs(line))
        return found

    def _pen(self, letter: str, style: str) -> int:
        self._pens.append((letter, style))
        return len(self._pens) - 1

    def _row(self, up: Axis, values: Floats) -> Ints:
        """Return the rows of dots of values, counted from the top."""
        tall = self._dots.shape[0]
        place = up.place(values, tall)
        return np.where(place >= 0, tall - 1 - place, -1)

    def _join(self, segments: Ints, pen: int) -> None:
        """Set the dots of straight segments (x, y, x, y); equal ones are drawn once."""
        if not len(segments):
            return
        shape = (self._dots.shape[1], self._dots.shape[0]) * 2
        alike = np.unique(np.ravel_multi_index(tuple(segments.T), shape))
        x0, y0, x1, y1 = np.unravel_index(alike, shape)
        count = np.maximum(np.abs(x1 - x0), np.abs(y1 - y0)) + 1
        which = np.repeat(np.arange(len(count)), count)
        along = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        share = along / np.maximum(count - 1, 1)[which]
        column = np.rint(x0[which] + (x1 - x0)[which] * share).astype(np.int64)
        row = np.rint(y0[which] + (y1 - y0)[which] * share).astype(np.int64)
        self._set(row, column, pen)

    def _set(self, row: Ints, column: Ints, pen: int) -> None:
        cells = row // self._fine[0], column // self._fine[1]
        other = self._owner[cells] != pen
        if other.any():  # a cell has one colour: who comes later takes all of it
            tall, wide = self._fine
            for r, c in {(int(r), int(c)) for r, c in zip(cells[0][other], cells[1][other], strict=True)}:
                self._dots[r * tall : (r + 1) * tall, c * wide : (c + 1) * wide] = False
        self._owner[cells] = pen
        self._dots[row, column] = True
