"""View -> picture: one form of views, one file; see ``form.py`` for the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.show.static.canvas import blank, entitle, say, target, write
from neuraldbg.show.static.theme import theme_of

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from neuraldbg.show.forms import View
    from neuraldbg.show.static.form import Form
    from neuraldbg.show.static.theme import Theme

EMPTY_IN = (8.0, 3.0)


def figure(view: View, *, size_in: tuple[float, float] | None = None, theme: str | Theme = "light") -> Figure:
    """Draw a view; one without anything to show becomes a picture that says what is missing.

    ``size_in`` is width and height in inches, by default what suits the view. ConfigError for an unknown theme,
    MissingExtra if matplotlib is not installed.
    """
    look = theme_of(theme)
    made = blank(size_in or EMPTY_IN, look)
    if view.empty:
        entitle(made, view.title, view.notes, look)
        say(made, view.empty, look)
        return made
    form = next(form for form in _forms() if isinstance(view, form.of))
    if size_in is None:
        made.set_size_inches(form.size(view))
    entitle(made, view.title, view.notes, look)
    form.draw(made, view, look)
    return made


def size_of(view: View) -> tuple[float, float]:
    """Return the width and height in inches that suit a view. MissingExtra if matplotlib is not installed."""
    blank(EMPTY_IN, theme_of("light"))
    return EMPTY_IN if view.empty else next(form for form in _forms() if isinstance(view, form.of)).size(view)


def save(view: View, path: Path | str, *, size_in: tuple[float, float] | None = None, theme: str = "light") -> None:
    """Write the picture of a view; the suffix .png, .svg or .pdf chooses the format.

    ConfigError for another suffix or a place that cannot be written, MissingExtra if matplotlib is not installed.
    """
    where = target(path)
    write(figure(view, size_in=size_in, theme=theme), where)


def _forms() -> tuple[Form, ...]:
    """Imported once it is known that matplotlib is there."""
    from neuraldbg.show.static import bars, graph, heat, histogram, lines, spread, timeline  # noqa: PLC0415 (of the extra)

    return (bars.FORM, graph.FORM, heat.FORM, histogram.FORM, lines.FORM, spread.FORM, timeline.FORM)
