"""Two runs and their comparison -> one picture: the summary, both losses, and how far apart each layer is.

Needs the extra ``plot``. Its parts are drawn by the forms, as any view is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.show.static.canvas import blank, entitle, say, target, write
from neuraldbg.show.static.theme import theme_of
from neuraldbg.show.views.pair import pair_views
from neuraldbg.show.views.view import Heat

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from neuraldbg.nouns import RunRecord
    from neuraldbg.nouns.comparison import Comparison
    from neuraldbg.show.static.form import Form
    from neuraldbg.show.static.theme import Theme
    from neuraldbg.show.views.view import View

WIDTH_IN, HEAD_IN, EMPTY_IN = 10.0, 0.8, 1.5


def pair_figure(
    one: RunRecord,
    other: RunRecord,
    comparison: Comparison,
    *,
    size_in: tuple[float, float] | None = None,
    theme: str = "light",
) -> Figure:
    """Draw a comparison. ConfigError for an unknown theme, MissingExtra if matplotlib is not installed."""
    look = theme_of(theme)
    views = pair_views(one, other, comparison)
    figure = blank(size_in or (WIDTH_IN, HEAD_IN), look)
    heights = [_height(view) for view in views]
    if size_in is None:
        figure.set_size_inches(WIDTH_IN, HEAD_IN + sum(heights))
    entitle(figure, f"{comparison.verdict.upper()}: {comparison.summary}", (), look)
    for row, view in enumerate(views):
        _draw(_part(figure, heights, row), view, look)
    return figure


def save_pair(one: RunRecord, other: RunRecord, comparison: Comparison, path: Path | str) -> None:
    """Write the picture; the suffix .png, .svg or .pdf chooses the format. ConfigError as ``draw.save`` raises it."""
    where = target(path)
    write(pair_figure(one, other, comparison), where)


def _form(view: View) -> Form:
    from neuraldbg.show.static import heat, lines  # noqa: PLC0415 (of the extra)

    return heat.FORM if isinstance(view, Heat) else lines.FORM


def _height(view: View) -> float:
    return EMPTY_IN if view.empty else _form(view).size(view)[1]


def _draw(part: Figure, view: View, look: Theme) -> None:
    entitle(part, view.title, view.notes, look)
    if view.empty:
        say(part, view.empty, look)
    else:
        _form(view).draw(part, view, look)


def _part(figure: Figure, heights: list[float], row: int) -> Any:
    """A part of a picture that knows its own size in inches: the forms ask a whole picture for it."""
    from matplotlib.figure import SubFigure  # noqa: PLC0415 (of the extra)
    from matplotlib.gridspec import GridSpec  # noqa: PLC0415

    class Part(SubFigure):
        def get_figwidth(self) -> float:
            return float(self.bbox.width / self.dpi)

        def get_figheight(self) -> float:
            return float(self.bbox.height / self.dpi)

    grid = GridSpec(len(heights), 1, figure, height_ratios=heights)
    part = Part(figure, grid[row, 0], facecolor=figure.get_facecolor())
    figure.subfigs.append(part)
    figure.stale = True
    return part
