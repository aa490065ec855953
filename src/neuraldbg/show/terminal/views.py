"""Views as text: each as wide as the terminal is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg.show.terminal.draw import columns, drawn
from neuraldbg.show.terminal.marks import ASCII, UNICODE
from neuraldbg.show.views import view

if TYPE_CHECKING:
    from rich.console import Console

    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.views.view import Choice


def print_views(run: RunRecord, diagnosis: Diagnosis, names: tuple[str, ...], choice: Choice, console: Console) -> None:
    """Print views by their names, with an empty line between two."""
    marks = ASCII if console.options.ascii_only else UNICODE
    for i, name in enumerate(names):
        if i:
            console.print()
        found = view(name, run, diagnosis, choice)
        room = columns(found, console.width, marks=marks)  # known only when the names beside it are
        if room is not None:
            found = view(name, run, diagnosis, replace(choice, columns=room))
        console.print(drawn(found, console.width, marks=marks))
