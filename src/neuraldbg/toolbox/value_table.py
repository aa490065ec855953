"""A small table of names and values, as text and as HTML: how the toolbox shows what it computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns.html import DIM, div, safe

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMED = 4
"""Members of a list that a sentence names at most."""


def text_table(rows: list[tuple[str, str]]) -> str:
    """Return a line for each row, the names padded to one width."""
    wide = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:<{wide}}  {value}" for name, value in rows)


def html_table(rows: list[tuple[str, str]], head: str = "") -> str:
    """Return the rows as a table for a notebook, below a line of text."""
    body = "".join(f'<tr><td style="{DIM}">{safe(name)}</td><td>{safe(value)}</td></tr>' for name, value in rows)
    return div(f"{f'<b>{safe(head)}</b>' if head else ''}<table>{body}</table>")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 name", "1,024 names".

    >>> counted(1, "name"), counted(1024, "name")
    ('1 name', '1,024 names')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def named(members: Iterable[object], most: int = NAMED) -> str:
    """Return the members of a list as a sentence has them: "3 and 17", "1, 2, 3, 4 and 8 more".

    >>> named([3, 17])
    '3 and 17'
    """
    every = [str(one) for one in members]
    if len(every) > most:
        every = [*every[:most], f"{len(every) - most:,} more"]
    return " and ".join([", ".join(every[:-1]), every[-1]] if len(every) > 1 else every)
