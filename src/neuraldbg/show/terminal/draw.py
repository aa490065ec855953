"""A view as text: any form and a width enter, lines that fit the width leave.

Meaning is in characters, colour only repeats it; ``marks`` chooses Unicode or ASCII. The title comes first, then the
form, then what its signs mean and the notes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from rich.text import Text

from neuraldbg.show.forms import Bars, Graph, Heat, Lines, Spread, Timeline, View
from neuraldbg.show.terminal import bars, graph, heat, lines, spread, timeline
from neuraldbg.show.terminal.frame import wrapped
from neuraldbg.show.terminal.marks import UNICODE, Marks

if TYPE_CHECKING:
    from collections.abc import Callable

    Draw: TypeAlias = Callable[..., list[Text]]

FORMS: tuple[tuple[type[View], Draw], ...] = (
    (Bars, bars.drawn),
    (Graph, graph.drawn),
    (Heat, heat.drawn),
    (Lines, lines.drawn),
    (Spread, spread.drawn),
    (Timeline, timeline.drawn),
)
NARROWEST = 40
LEAST = 6
"""Lines that a form needs; where fewer are left the notes go."""


def columns(view: View, width: int, *, marks: Marks = UNICODE) -> int | None:
    """Return the number of columns over time of a view of this width; None if it is no map of columns.

    A view that was computed with that number is drawn as it is, so its notes on columns are true of the drawing.
    """
    width = max(width, NARROWEST)
    if isinstance(view, Heat):
        return heat.room(view, width, marks)
    return spread.room(width) if isinstance(view, Spread) else None


def drawn(view: View, width: int, height: int | None = None, *, marks: Marks = UNICODE) -> Text:
    """Return a view as text, no line wider than ``width`` cells (40 at least), and ``height`` lines at most."""
    width = max(width, NARROWEST)
    head = wrapped(view.title, width, "bold", marks)
    foot = [line for note in view.notes for line in wrapped(note, width, "dim", marks)]
    room = None if height is None else height - len(head) - len(foot)
    if room is not None and room < LEAST:
        room, foot = room + len(foot), []
    if view.empty:
        body = wrapped(view.empty, width, "", marks)
    else:
        body = next(draw for form, draw in FORMS if isinstance(view, form))(view, width, room, marks)
    found = [*head, *body, *foot]
    if height is not None and len(found) > height:
        more = f"(+{len(found) - height + 1} lines)"
        found = [*found[: height - 1], Text(more, "dim")]
    for line in found:
        line.rstrip()
        line.truncate(width)
    return Text("\n").join(found)
