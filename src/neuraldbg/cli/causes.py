"""``neuraldbg causes``: the causes that a diagnosis can name, and the page of each."""

from __future__ import annotations

import textwrap
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click

from neuraldbg.cli.command import OK, Command, Result, examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from neuraldbg.explain.cause import Cause

TEXT = 4
"""Spaces before the text under a heading of a page."""
WIDEST = 88
"""Columns of a page."""
LEAST = 24
"""Least columns for the titles beside the ids in the list of causes."""
WHOLE: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
"""Names such as log-softmax stay in one piece."""


@examples(
    ("causes", "all of them, one a line"),
    ("causes dead_relu", "how one shows, and what to do"),
)
@click.command("causes", cls=Command, short_help="List the causes, or read one's page.")
@click.argument("cause_id", metavar="[ID]", required=False)
def COMMAND(cause_id: str | None) -> Result:  # noqa: N802 (the name is the contract)
    """List every cause that a diagnosis can name, or show the page of one: how it shows and what to do."""
    from rich.console import Console  # noqa: PLC0415 (see command.py)

    from neuraldbg.explain.causes import CAUSES, cause  # noqa: PLC0415

    console = Console(highlight=False, markup=False, emoji=False)
    if cause_id is None:
        _list(console, CAUSES)
    else:
        _page(console, cause(cause_id))
    return OK


def _list(console: Console, causes: tuple[Cause, ...]) -> None:
    """One line a cause, under its category; on a narrow terminal its id has a line of its own."""
    from rich.text import Text  # noqa: PLC0415

    ids = max((len(one.id) for one in causes), default=0)
    beside = console.width - ids - 4
    below = beside < LEAST  # no room for a title beside the longest id
    wide = min(max((len(one.title) for one in causes), default=0), max(10, console.width - 4) if below else beside)
    for category in dict.fromkeys(one.category for one in causes):
        console.print(Text(category, style="bold"))
        for one in causes:
            if one.category == category:
                *first, last = textwrap.wrap(one.title, wide)
                for part in [*first, last] if below else first:
                    console.print(Text(f"  {part}"), soft_wrap=True)
                line = Text.assemble("    " if below else f"  {last:<{wide}}  ", (one.id, "cyan"))
                console.print(line, no_wrap=True, overflow="ignore", crop=False)
    console.print(Text(f"{len(causes)} causes; `neuraldbg causes ID` shows one's page.", style="dim"))


def _page(console: Console, cause: Cause) -> None:
    """The module's docstring: its first line, then headings with text below; deeper indented lines stay as they are."""
    from rich.text import Text  # noqa: PLC0415

    console.print(Text.assemble((cause.title, "bold"), " · ", (cause.id, "bold cyan"), f" · {cause.category}"))
    for line in _reflowed(cleandoc(cause.page), min(console.width, WIDEST)):
        if line and not line.startswith(" "):
            console.print(Text(line, style="bold"), soft_wrap=True)
        else:
            console.print(Text(line), soft_wrap=True)


def _reflowed(page: str, width: int) -> Iterator[str]:
    """Fill the text under each heading; what is indented deeper (code) or starts a list keeps its lines."""
    words: list[str] = []
    for line in [*page.replace("``", "`").splitlines(), ""]:
        depth = len(line) - len(line.lstrip())
        if depth == TEXT and not line.lstrip().startswith(("- ", "* ")):
            words.append(line.strip())
            continue
        if words:
            yield from textwrap.wrap(" ".join(words), width, initial_indent="  ", subsequent_indent="  ", **WHOLE)
            words = []
        if depth >= TEXT:
            yield line[TEXT - 2 :]
        else:
            yield from textwrap.wrap(line, width, **WHOLE) or [""]
