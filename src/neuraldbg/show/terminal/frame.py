"""The parts around a drawing: names cut to columns, the axis of steps, the lane of marks, and the legend of signs.

Widths are counted in cells of the terminal, of which a Chinese character takes two.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from neuraldbg.nouns.layout import called
from neuraldbg.show.format.safe_text import number, plain
from neuraldbg.show.format.short_names import short_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from neuraldbg.show.axes.ticks import Axis
    from neuraldbg.show.forms import Floats, Mark, Scale
    from neuraldbg.show.terminal.marks import Marks

MOST_MARKS = 6
"""Largest number of marks in words; of more, the first."""
MOMENT_STYLE = {"failure": "bold red", "cause": "bold", "event": "yellow", "chosen": "bold cyan"}
URGENT = ("event", "cause", "chosen", "failure")
"""The later covers the earlier where two marks fall into one cell."""
EXACT = 1e9
"""Whole numbers below are written out: they count something."""
BYTES = ("B", "kB", "MB", "GB", "TB", "PB")


def safe(words: str, marks: Marks) -> str:
    """Return words of a run as this terminal can show them."""
    return plain(words.replace("…", marks.cut), marks.encoding)


def cut(words: str, width: int, marks: Marks) -> str:
    """Return words that take at most ``width`` cells; where they were longer they end in a sign for it."""
    if cell_len(words) <= width:
        return words
    return set_cell_size(words, max(0, width - cell_len(marks.cut))).rstrip() + marks.cut[: max(0, width)]


def padded(words: str, width: int, marks: Marks, *, right: bool = False) -> str:
    """Return words that take exactly ``width`` cells."""
    words = cut(words, width, marks)
    space = " " * (width - cell_len(words))
    return space + words if right else words + space


def labels(layers: Sequence[str], guilty: Sequence[str], width: int, marks: Marks) -> list[Text]:
    """Return a column of names, all of one width, at most a third of ``width``; the guilty are marked by a sign."""
    short = short_names(layers)
    names = [safe(short[layer], marks) for layer in layers]
    wide = min(max((cell_len(name) for name in names), default=0), width // 3 - 2)
    # Layers are often alike but for the number at their end: names that would become equal keep that end.
    alike = Counter(cut(name, wide, marks) for name in names)
    names = [name if alike[cut(name, wide, marks)] == 1 else _end_of(name, wide, marks) for name in names]
    return [
        Text(f"{marks.guilty} {padded(name, wide, marks)}", "bold red")
        if layer in guilty
        else Text(f"  {padded(name, wide, marks)}")
        for layer, name in zip(layers, names, strict=True)
    ]


def _end_of(name: str, width: int, marks: Marks) -> str:
    """Return the end of a name that takes at most ``width`` cells, behind a sign if it was longer."""
    if cell_len(name) <= width:
        return name
    tail = name.removeprefix(marks.cut)
    while tail and cell_len(marks.cut) + cell_len(tail) > width:
        tail = tail[1:]
    return marks.cut + tail


def wrapped(words: str, width: int, style: str, marks: Marks, hang: int = 0) -> list[Text]:
    """Return words in lines of at most ``width`` cells; further lines are moved to the right by ``hang``."""
    lines, line = [], ""
    for word in safe(words, marks).split(" "):
        joined = f"{line} {word}" if line else word
        if line.strip() and cell_len(joined) > width:
            lines.append(line)
            joined = " " * hang + word
        while cell_len(joined) > width:
            head = set_cell_size(joined, width)
            head = head if cell_len(head) == width and joined.startswith(head) else joined[: len(head) - 1]
            lines.append(head)
            joined = " " * hang + joined[len(head) :]
        line = joined
    return [Text(each.rstrip(), style) for each in [*lines, line]]


def signs_told(items: Sequence[str], width: int, marks: Marks) -> list[Text]:
    """Return the legend of signs, several on a line; an entry that fits a line is not broken."""
    lines: list[str] = []
    for item in items:
        if lines and cell_len(lines[-1]) + 3 + cell_len(item) <= width:
            lines[-1] += f"   {item}"
        else:
            lines.append(item)
    return [line for words in lines for line in wrapped(words, width, "dim", marks, hang=2)]


def ruler(
    at: Callable[[float], int], axis: Axis, cells: int, left: int, words: str, marks: Marks, *, whole: bool = True
) -> list[Text]:
    """Return the axis below a drawing: its line with ticks, their numbers, its label. ``at`` gives a number's cell."""
    ticks = axis.ticks(max(1, cells // 12), whole=whole)
    rule, numbers, free = [marks.rule] * cells, [" "] * cells, 0
    for tick in ticks:
        label, cell = f"{tick:,.0f}" if whole else number(tick), at(tick)
        start = min(max(0, cell - len(label) // 2), max(0, cells - len(label)))
        if start >= free and 0 <= cell < cells and len(label) <= cells:
            rule[cell] = marks.tick
            numbers[start : start + len(label)] = label
            free = start + len(label) + 2
    space, name = " " * left, cut(safe(words, marks), cells, marks)
    middle = " " * ((cells - cell_len(name)) // 2)
    return [
        Text(f"{space}{marks.corner}{''.join(rule)}", "dim"),
        Text(f"{space} {''.join(numbers)}".rstrip(), "dim"),
        *([Text(f"{space} {middle}{name}", "dim")] if name else []),
    ]


def lane(found: Sequence[Mark], at: Callable[[float], int], cells: int, left: int, marks: Marks) -> list[Text]:
    """Return the line above a drawing that says when something was, none where nothing is marked."""
    row = [(" ", "")] * cells
    for mark in sorted(found, key=lambda mark: URGENT.index(mark.role) if mark.role in URGENT else 0):
        first, last = at(mark.step), at(mark.step if mark.last is None else mark.last)
        if last < 0 or first >= cells:
            continue
        style = MOMENT_STYLE.get(mark.role, "")
        for cell in range(max(first, 0) + 1, min(last, cells - 1) + 1):
            if row[cell][0] == " ":
                row[cell] = (marks.stretch, style)
        if first >= 0:
            row[first] = (marks.moment.get(mark.role, marks.sigil), style)
    if all(sign == " " for sign, _ in row):
        return []
    line = Text(" " * (left + 1)).append_text(in_runs(row))
    line.rstrip()
    return [line]


def marks_told(found: Sequence[Mark], width: int, marks: Marks) -> list[Text]:
    """Return the legend of the signs in the lane, a line each, the most urgent first."""
    ordered = sorted(found, key=lambda mark: -URGENT.index(mark.role) if mark.role in URGENT else 0)
    lines: list[Text] = []
    for mark in ordered[:MOST_MARKS]:
        where = f" in {called(mark.layer)}" if mark.layer and mark.layer not in mark.label else ""
        last = f" to {mark.last:,}" if mark.last is not None and mark.last != mark.step else ""
        when = "" if f"step {mark.step:,}" in mark.label and not last else f", step {mark.step:,}{last}"
        sign = marks.moment.get(mark.role, marks.sigil)
        lines += wrapped(f"{sign} {mark.label}{where}{when}", width, MOMENT_STYLE.get(mark.role, ""), marks, hang=2)
    if len(ordered) > MOST_MARKS:
        lines.append(Text(f"  (+{len(ordered) - MOST_MARKS} more)", "dim"))
    return lines


def worst(layers: Sequence[str], guilty: Sequence[str], sizes: Floats, most: int) -> list[int]:
    """Return which of many layers to show, in their order: the guilty ones, then those of the largest sizes."""
    if len(layers) <= most:
        return list(range(len(layers)))
    told = np.where([layer in guilty for layer in layers], np.inf, np.nan_to_num(sizes, nan=-np.inf, posinf=np.inf))
    return sorted(np.argsort(-told, kind="stable")[: max(1, most)].tolist())


def kept_told(kept: int, count: int, guilty: Sequence[str], width: int, marks: Marks) -> list[Text]:
    """Return a line on the layers that ``worst`` left out."""
    which = "the guilty, the largest" if guilty else "the largest"
    return wrapped(f"{kept} of {count} shown: {which}", width, "dim", marks)[:1]


def quantity(value: float, scale: Scale) -> str:
    """Return a number with its unit, bytes in the unit that fits."""
    if scale.unit == "B" and np.isfinite(value):
        power = min(int(np.log10(max(abs(value), 1.0)) // 3), len(BYTES) - 1)
        return f"{number(value / 1000**power)} {BYTES[power]}"
    if float(value).is_integer() and abs(value) < EXACT:
        return f"{int(value):,} {scale.unit}".rstrip()
    return f"{number(value)} {scale.unit}".rstrip()


def named(scale: Scale) -> str:
    """Return the name of an axis, with its unit and whether it is logarithmic."""
    told = [part for part in (scale.unit, "log" if scale.log else "") if part]
    return f"{scale.label} ({', '.join(told)})" if told else scale.label


def in_runs(cells: Iterable[tuple[str, str]]) -> Text:
    """Return cells (sign, style) as one line: neighbours of one style are one piece, of which a line has few."""
    pieces = ((style, "".join(sign for sign, _ in run)) for style, run in groupby(cells, key=lambda cell: cell[1]))
    return Text.assemble(*((signs, style) for style, signs in pieces))
