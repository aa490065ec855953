"""The picture of a comparison of two runs: the summary, both losses, and the difference of each layer.

Needs the extra ``plot``. Its parts are drawn as any view is, each as a picture of its own, and set one below the other:
a form asks the page that it is on for its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.show.static import draw
from neuraldbg.show.static.canvas import DPI, blank, entitle, target, write
from neuraldbg.show.static.theme import theme_of
from neuraldbg.show.views.pair import pair_views

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt
    from matplotlib.figure import Figure

    from neuraldbg.nouns import RunRecord
    from neuraldbg.nouns.comparison import Comparison
    from neuraldbg.show.forms import View

WIDTH_IN, HEAD_IN = 10.0, 0.8


def pair_figure(
    one: RunRecord, other: RunRecord, comparison: Comparison, *, width_in: float = WIDTH_IN, theme: str = "light"
) -> Figure:
    """Draw a comparison. ConfigError for an unknown theme, MissingExtra if matplotlib is not installed."""
    look = theme_of(theme)
    page = blank((width_in, HEAD_IN), look)
    views = pair_views(one, other, comparison)
    parts = [_painted(draw.figure(view, size_in=_size(view, width_in, theme), theme=theme)) for view in views]
    heights = [len(part) / DPI for part in parts]
    whole = HEAD_IN + sum(heights)
    page.set_layout_engine("none")  # the parts are laid out already
    page.set_size_inches(width_in, whole)
    entitle(page, f"{comparison.verdict.upper()}: {comparison.summary}", (), look)
    top = whole - HEAD_IN
    for part, height in zip(parts, heights, strict=True):
        axes = page.add_axes((0.0, (top - height) / whole, 1.0, height / whole))
        axes.set_axis_off()
        axes.imshow(part, aspect="auto", interpolation="none")
        top -= height
    return page


def save_pair(one: RunRecord, other: RunRecord, comparison: Comparison, path: Path | str) -> None:
    """Write the picture; the suffix .png, .svg or .pdf chooses the format. ConfigError as ``draw.save`` raises it."""
    where = target(path)
    write(pair_figure(one, other, comparison), where)


def _size(view: View, width_in: float, theme: str) -> tuple[float, float]:
    """Return the width of the page, and the height that fits the view."""
    return width_in, draw.figure(view, theme=theme).get_figheight()


def _painted(figure: Figure) -> npt.NDArray[np.uint8]:
    """Return the dots of a picture, shape (height, width, 4)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (of the extra)

    figure.set_dpi(DPI)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()).copy()
