"""The changes of a function between two runs: its lines in both enter, the parts that differ leave, as a diff has them.

A line that stands elsewhere, or with another indentation, is one change and is called moved.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Lines = Sequence[str]
    Part = tuple[int, int, int, int]


def changes(first: Lines, second: Lines) -> list[tuple[list[str], list[str]]]:
    """Return the lines of each part that differs, in both runs. Of a moved line it is said where it stands."""
    one, other = [line.strip() for line in first], [line.strip() for line in second]
    levels = _indents(first), _indents(second)
    if not (any(levels[0]) and any(levels[1])):  # a run of an older version has no indentations
        levels = [0] * len(one), [0] * len(other)
    parts = list(_parts(list(zip(one, levels[0], strict=True)), list(zip(other, levels[1], strict=True)), one, other))
    gone = {tuple(one[a:b]): (a, b) for a, b, c, d in parts if c == d}
    new = {tuple(other[c:d]): (c, d) for a, b, c, d in parts if a == b}
    moved = gone.keys() & new.keys()
    found = []
    for a, b, c, d in parts:
        before, after = one[a:b], other[c:d]
        if c == d and tuple(before) in moved:
            to = new[tuple(before)][0]
            found.append((_placed(before, one, a), _placed(before, other, to)))
        elif a == b and tuple(after) in moved:
            continue  # said where the lines stood before
        elif before == after:
            found.append((_indented(before, levels[0][a]), _indented(after, levels[1][c])))
        else:
            found.append((before, after))
    return found


def _parts(
    first: list[tuple[str, int]], second: list[tuple[str, int]], one: list[str], other: list[str]
) -> Iterator[Part]:
    """Yield the parts that differ; of lines whose indentation changed around others only those others."""
    for kind, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        inner = SequenceMatcher(None, one[a:b], other[c:d], autojunk=False).get_opcodes()
        unlike = [(a + i, a + j, c + k, c + m) for what, i, j, k, m in inner if what != "equal"]
        yield from unlike or [(a, b, c, d)]


def _indents(lines: Lines) -> list[int]:
    """Return the indentation of each line, from that of the outermost line on."""
    found = [len(line) - len(line.lstrip()) for line in lines]
    return [level - min(found, default=0) for level in found]


def _placed(lines: list[str], all_of: list[str], at: int) -> list[str]:
    return [*lines[:-1], f"{lines[-1]} (after {all_of[at - 1]})" if at else f"{lines[-1]} (at the beginning)"]


def _indented(lines: list[str], level: int) -> list[str]:
    return [*lines[:-1], f"{lines[-1]} (indented by {level})"]
