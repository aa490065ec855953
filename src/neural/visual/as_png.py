"""A picture as the bytes of a PNG, drawn by matplotlib on light ground."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

from neural.errors import MissingPackage, NeuralError
from neural.visual.looks import FAMILY, LIGHT, edge, face
from neural.visual.shapes import ROUND, STRIPE, Arrow, Frame, Round, Words

if TYPE_CHECKING:
    from neural.visual.shapes import Picture

UNIT = 96.0
"""Pixels of a picture in an inch."""
SHARP, COARSE = 192.0, 72.0
"""Resolution in dots per inch: what is wanted, and the least at which small type can be read."""
MOST_DOTS, LONGEST = 80e6, 60_000
"""Dots of the whole and of a side: matplotlib draws sides of less than 2^16."""


def png(picture: Picture) -> bytes:
    """Return the bytes of a PNG. NeuralError is raised if its words would be too small, MissingPackage without
    matplotlib.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (of the extra `plot`)
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingPackage("matplotlib", "'neuraldbg[plot]'", "a picture as PNG") from None
    wide, high = picture.width / UNIT, picture.height / UNIT
    dots = min(SHARP, math.sqrt(MOST_DOTS / (wide * high)), LONGEST / wide, LONGEST / high)
    if dots < COARSE:
        raise NeuralError(f"{picture.title}: too large for a PNG that can be read; --format svg has no limit")
    figure = Figure(figsize=(wide, high), dpi=dots, facecolor=LIGHT["ground"])
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, picture.width)
    axes.set_ylim(picture.height, 0)
    for order, shape in enumerate(picture.shapes):
        match shape:
            case Frame():
                _frame(axes, shape, order)
            case Round():
                _round(axes, shape, order)
            case Words():
                _words(axes, shape, order)
            case Arrow():
                _arrow(axes, shape, order)
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=dots, metadata={"Software": None, "Title": picture.title})
    return target.getvalue()


def _frame(axes: Any, shape: Frame, order: int) -> None:
    from matplotlib.patches import FancyBboxPatch, Rectangle  # noqa: PLC0415 (as above)

    box = FancyBboxPatch(
        (shape.x, shape.y), shape.width, shape.height, boxstyle=f"round,pad=0,rounding_size={ROUND}", zorder=order
    )
    box.set(facecolor=LIGHT[face(shape.look)], edgecolor=LIGHT[edge(shape.look)], linewidth=0.8)
    box.set_linestyle((0, (5, 3)) if shape.look == "block" else "-")
    axes.add_patch(box)
    if shape.family in FAMILY and shape.look != "block":
        place = (shape.x, shape.y + ROUND / 2)
        stripe = Rectangle(place, STRIPE, shape.height - ROUND, color=FAMILY[shape.family], linewidth=0, zorder=order)
        axes.add_patch(stripe)


def _round(axes: Any, shape: Round, order: int) -> None:
    from matplotlib.patches import Circle  # noqa: PLC0415 (as above)

    circle = Circle((shape.x, shape.y), shape.radius, zorder=order, linewidth=0.8)
    circle.set(facecolor=LIGHT[face(shape.look)], edgecolor=LIGHT[edge(shape.look)])
    axes.add_patch(circle)


def _words(axes: Any, shape: Words, order: int) -> None:
    said = axes.text(shape.x, shape.y, shape.text, color=LIGHT[shape.look], va="baseline", zorder=order)
    said.set(fontsize=shape.size * 72 / UNIT, ha="center" if shape.centred else "left", parse_math=False)
    said.set_fontweight("bold" if shape.bold else "normal")


def _arrow(axes: Any, shape: Arrow, order: int) -> None:
    from matplotlib.patches import FancyArrowPatch  # noqa: PLC0415 (as above)
    from matplotlib.path import Path  # noqa: PLC0415

    codes = {"M": [Path.MOVETO], "L": [Path.LINETO], "Q": [Path.CURVE3] * 2, "C": [Path.CURVE4] * 3}
    points = [point for _, points in shape.commands for point in points]
    path = Path(points, [code for command, _ in shape.commands for code in codes[command]])
    way = FancyArrowPatch(path=path, arrowstyle="-|>" if shape.head else "-", mutation_scale=9, zorder=order)
    way.set(color=LIGHT["line"], linewidth=1.1)
    axes.add_patch(way)
