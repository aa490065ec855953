"""Any numbers as plain ASCII, for a machine without a screen: arrays enter, text leaves.

>>> print(TerminalVisualizer(80, 24).ascii_line_plot([0, 1, 2], [2.3, 1.7, 0.4], "loss"))  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from neuraldbg.errors import ConfigError
from neuraldbg.show.axes.ticks import axis_of
from neuraldbg.show.format.array_input import numbers
from neuraldbg.show.format.safe_text import number
from neuraldbg.show.forms import Bar, Bars, Scale
from neuraldbg.show.terminal import bars
from neuraldbg.show.terminal.canvas import Canvas
from neuraldbg.show.terminal.frame import cut, ruler, safe, wrapped
from neuraldbg.show.terminal.heat import cells
from neuraldbg.show.terminal.lines import TICK_WIDTH, beside
from neuraldbg.show.terminal.marks import ASCII

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.show.forms import Floats

NARROWEST, LOWEST = 40, 8
"""Columns and lines that a plot needs."""


class TerminalVisualizer:
    """Draws lists, numpy arrays and tensors of any framework as ASCII text of at most ``width`` x ``height`` signs.

    Values that are NaN or infinite are left out, and the text says how many. Raises ConfigError for a size that is too
    small (40 x 8 at least), for values that are no numbers, and for lengths that do not fit each other.
    """

    def __init__(self, width: int = 80, height: int = 24) -> None:
        if width < NARROWEST or height < LOWEST:
            raise ConfigError(f"{width} x {height} is too small to draw in: at least {NARROWEST} x {LOWEST} is needed")
        self.width, self.height = width, height

    def ascii_histogram(self, values: Any, bins: int = 10, title: str = "") -> str:
        """Draw how many values fall into each of ``bins`` equal bins, a line each, the least values on top.

        >>> print(TerminalVisualizer(60, 10).ascii_histogram([1.0, 2.0, 1.5, 3.0, 2.5], bins=2, title="weights"))
        weights
        ...
        """
        if bins < 1:
            raise ConfigError(f"a histogram cannot have {bins} bins: give 1 or more")
        head = self._head(title)
        found, lost = finite(values)
        if not len(found):
            return self._text([*head, *self._told(lost, "there is no value to count")])
        if found.max() / 4 - found.min() / 4 > np.finfo(np.float64).max / 8:
            raise ConfigError("the range of the values is too wide for bins of equal width")
        room = self.height - len(head) - len(self._told(lost, "")) - 3
        shown = min(bins, room)
        low, high = float(found.min()), float(found.max())
        if not np.all(np.diff(np.linspace(low, high, shown + 1)) > 0):  # equal values, or all but
            half = max(0.5, abs(low) * 2.0**-40)  # in which as many edges differ
            low, high = low - half, high + half
        counts, edges = np.histogram(found, bins=shown, range=(low, high))
        digits = [f"{edge:.4g}" for edge in edges.tolist()]
        view = Bars(
            name="histogram",
            title=title,
            layers=tuple(f"{i:04d}" for i in range(shown)),
            bars=(Bar("", counts.astype(np.float64)),),
            scale=Scale("count"),
        )
        words = f"{len(found):,} values; a line counts those from its number to the next, the last to {digits[-1]}"
        words += f"; {shown} of the {bins} bins have room" if shown < bins else ""
        rows = bars.drawn(view, self.width - TICK_WIDTH + 4, None, ASCII)[:shown]
        body = [Text(f"{digits[i]:>{TICK_WIDTH + 2}}") + row[row.plain.index("|") :] for i, row in enumerate(rows)]
        return self._text([*head, *body, *self._told(lost, words)])

    def ascii_line_plot(self, x: Any, y: Any, title: str = "") -> str:
        """Draw the points (x, y), joined in their order; the line breaks where one is not finite.

        >>> print(TerminalVisualizer(60, 10).ascii_line_plot([0, 1, 2], [2.3, 1.7, 0.4], title="loss"))
        loss
        ...
        """
        across, up = numbers(x, "x"), numbers(y, "y")
        if len(across) != len(up):
            raise ConfigError(f"x has {len(across)} values and y {len(up)}: each point needs both")
        there = np.isfinite(across) & np.isfinite(up)
        head, told = self._head(title), self._told(int((~there).sum()), "")
        if not there.any():
            return self._text([*head, *self._told(len(across), "there is no point to draw")])
        x_axis, y_axis = axis_of([across[there]]), axis_of([up[there]])
        wide = self.width - TICK_WIDTH - 1
        canvas = Canvas(wide, self.height - len(head) - len(told) - 2, ASCII)
        canvas.line(np.where(there, across, np.nan), np.where(there, up, np.nan), x_axis, y_axis, "*", "")
        below = ruler(
            lambda tick: int(x_axis.place(np.array([tick]), wide)[0]), x_axis, wide, TICK_WIDTH, "", ASCII, whole=False
        )
        return self._text([*head, *beside(canvas.rows(), y_axis, Scale(""), ASCII), *below, *told])

    def ascii_bar_chart(self, labels: Sequence[str], values: Any, title: str = "") -> str:
        """Draw a bar a label, with its number; of more than there is room for, the largest.

        >>> print(TerminalVisualizer(60, 10).ascii_bar_chart(["fc1", "fc2"], [0.5, 1.5], title="norm"))
        norm
        ...
        """
        found = numbers(values, "values")
        names = tuple(str(label) for label in labels)
        if len(names) != len(found):
            raise ConfigError(f"there are {len(names)} labels and {len(found)} values: each bar needs both")
        head = self._head(title)
        if not len(found):
            return self._text([*head, *self._told(0, "there is nothing to draw")])
        told = self._told(int((~np.isfinite(found)).sum()), "")
        shown = np.where(np.isfinite(found), found, np.nan)
        view = Bars(name="bars", title=title, layers=names, bars=(Bar("", shown),), scale=Scale("value"))
        room = self.height - len(head) - len(told)
        return self._text([*head, *bars.drawn(view, self.width, room, ASCII), *told])

    def ascii_heatmap(self, values: Any, title: str = "") -> str:
        """Draw a matrix, the more ink the larger the value; of values that share a sign, the largest.

        >>> print(TerminalVisualizer(60, 10).ascii_heatmap([[0.0, 1.0], [2.0, 3.0]], title="weights"))
        weights
        ...
        """
        matrix = numbers(values, "values", axes=2)
        bad = ~np.isfinite(matrix)
        head = self._head(title)
        if matrix.size == 0 or bad.all():
            return self._text([*head, *self._told(int(bad.sum()), "there is no value to draw")])
        shown = np.where(bad, -np.inf, matrix)
        words = f"{ASCII.levels} {number(float(matrix[~bad].min()))} to {number(float(matrix[~bad].max()))}"
        words += f"; {matrix.shape[0]:,} x {matrix.shape[1]:,} values"
        told = self._told(int(bad.sum()), words)
        for along, most in ((0, self.height - len(head) - len(told)), (1, self.width)):
            each = -(-shown.shape[along] // most)
            shown = np.maximum.reduceat(shown, np.arange(0, shown.shape[along], each), axis=along)
        lost = np.isneginf(shown)
        rows = cells(np.where(lost, np.nan, shown), lost, axis_of([matrix[~bad]]), ASCII)
        return self._text([*head, *rows, *told])

    def _head(self, title: str) -> list[Text]:
        return [Text(cut(safe(title, ASCII), self.width, ASCII))] if title else []

    def _told(self, lost: int, words: str) -> list[Text]:
        parts = [words] if words else []
        parts += [f"{lost:,} NaN or infinite left out"] if lost else []
        return wrapped("; ".join(parts), self.width, "", ASCII) if parts else []

    @staticmethod
    def _text(lines: Sequence[Text]) -> str:
        return "\n".join(line.plain.rstrip() for line in lines)


def finite(values: Any) -> tuple[Floats, int]:
    """Return the values that are finite, and how many are not."""
    found = numbers(values, "values")
    there = np.isfinite(found)
    return found[there], int((~there).sum())
