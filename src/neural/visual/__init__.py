"""The data flow of a network as a picture: a `Plan` enters, the text of an SVG or a page, or the bytes of a PNG leave.

data_flow.py     Plan -> Flow: inputs, layers with their words, blocks as flows of their own, the loss
text_width.py    the room that a text needs
layered.py       Flow -> Placed: rows, lanes beside them, columns of a long chain
shapes.py        Placed -> boxes, lines and words with coordinates
as_svg.py, as_png.py, as_page.py    shapes -> a file
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neural.errors import NeuralError
from neural.visual.data_flow import flow_of
from neural.visual.layered import placed
from neural.visual.shapes import picture_of

if TYPE_CHECKING:
    from neural.plan import Plan

FORMATS = ("html", "png", "svg")
MOST_LAYERS = 2000
"""Layers of a picture, those of blocks included: nobody reads more, and lanes past all of them take their time."""


def drawn(plan: Plan, format: str = "html") -> str | bytes:  # noqa: A002 (the command's word for it)
    """Return the picture of a network as the text of a page or an SVG, or as the bytes of a PNG.

    A page and an SVG are whole in themselves and follow the theme of the browser. NeuralError is raised for another
    format or a network of more than 2,000 layers, MissingPackage if a PNG is asked for and matplotlib is missing.
    """
    if format not in FORMATS:
        raise NeuralError(f"there is no picture in the format {format!r}: choose one of {', '.join(FORMATS)}")
    count = sum(1 for _ in plan.walk())
    if count > MOST_LAYERS:
        raise NeuralError(
            f"{plan.file}: the network {plan.name} has {count:,} layers, and a picture at most {MOST_LAYERS:,}; "
            "`neural check` lists them"
        )
    picture = picture_of(placed(flow_of(plan)), f"{plan.name}: {plan.parameter_count:,} parameters")
    if format == "png":
        from neural.visual.as_png import png  # noqa: PLC0415 (it needs matplotlib)

        return png(picture)
    if format == "svg":
        from neural.visual.as_svg import svg  # noqa: PLC0415 (as above)

        return svg(picture)
    from neural.visual.as_page import page  # noqa: PLC0415 (as above)

    return page(plan, picture)
