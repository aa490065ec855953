"""Boxes, lines and words with coordinates: a `Placed` flow enters, a `Picture` that any writer can draw leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from neural.visual.data_flow import BEGIN, BLOCK, SUM
from neural.visual.layered import HEAD, LINE, PAD, TITLE, WORDS
from neural.visual.text_width import text_width

if TYPE_CHECKING:
    from neural.visual.layered import Placed, Spot, Way

MARGIN, STRIPE, ROUND = 24.0, 5.0, 7.0
"""Room around the picture, width of the stripe of a family, and radius of a corner."""
NAME = 16.0
"""Size of the font of the heading."""


@dataclass(frozen=True)
class Frame:
    """Hold a rectangle with round corners; its look is the colour that a theme has for it."""

    x: float
    y: float
    width: float
    height: float
    look: str
    hint: str = ""
    family: str = ""
    """The family of a layer, whose colour is that of a stripe at its left."""


@dataclass(frozen=True)
class Round:
    """Hold a circle by its middle and radius."""

    x: float
    y: float
    radius: float
    look: str


@dataclass(frozen=True)
class Words:
    """Hold one line of text by the left end of its base line, or by its middle."""

    x: float
    y: float
    text: str
    size: float
    look: str = "ink"
    bold: bool = False
    centred: bool = False


@dataclass(frozen=True)
class Arrow:
    """Hold the way of an edge as commands of an SVG path (M, L, C, Q) with points; an arrowhead ends it."""

    commands: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    head: bool = True


@dataclass(frozen=True)
class Picture:
    """Hold all shapes of a picture, those behind first."""

    title: str
    width: float
    height: float
    shapes: tuple[Frame | Round | Words | Arrow, ...]


@dataclass
class _Drawing:
    shapes: list[Frame | Round | Words | Arrow] = field(default_factory=list)


def picture_of(placed: Placed, title: str) -> Picture:
    """Return the shapes of a flow below its title."""
    drawing = _Drawing()
    top = MARGIN + NAME + 34
    drawing.shapes.append(Words(MARGIN, MARGIN + NAME, title, NAME, bold=True))
    _flow(drawing, placed, MARGIN, top)
    width = max(placed.width, text_width(title, NAME, bold=True)) + 2 * MARGIN
    return Picture(title, width, top + placed.height + MARGIN, tuple(drawing.shapes))


def _flow(drawing: _Drawing, placed: Placed, x: float, y: float) -> None:
    drawing.shapes += [_arrow(way, x, y) for way in placed.ways]
    for spot in placed.spots:
        _spot(drawing, spot, x, y)


def _spot(drawing: _Drawing, spot: Spot, x: float, y: float) -> None:
    node, left, top = spot.node, x + spot.x, y + spot.y
    middle, half = left + spot.width / 2, spot.height / 2
    if node.kind == BEGIN:
        drawing.shapes.append(Round(middle, top + half, spot.width / 2, "dot"))
        return
    if node.kind == SUM:
        drawing.shapes.append(Round(middle, top + half, spot.width / 2, "sum"))
        drawing.shapes.append(Words(middle, top + half + 5.5, node.title, NAME, bold=True, centred=True))
        return
    drawing.shapes.append(Frame(left, top, spot.width, spot.height, node.kind, node.hint, node.family))
    line = top + HEAD
    drawing.shapes.append(Words(left + PAD, line, node.title, TITLE, bold=True))
    for text in node.lines:
        line += LINE
        drawing.shapes.append(Words(left + PAD, line, text, WORDS, "muted"))
    if node.kind == BLOCK and spot.inner is not None:
        inner = spot.inner
        _flow(drawing, inner, left + (spot.width - inner.width) / 2, top + spot.height - inner.height - PAD)


def _arrow(way: Way, x: float, y: float) -> Arrow:
    points = [(x + each[0], y + each[1]) for each in way.points]
    points = [points[0], *(other for one, other in pairwise(points) if one != other)]
    commands: list[tuple[str, tuple[tuple[float, float], ...]]] = [("M", (points[0],))]
    if way.straight:
        commands += _rounded(points)
        return Arrow(tuple(commands))
    for one, other in pairwise(points):
        if abs(one[0] - other[0]) < 0.5:
            commands.append(("L", (other,)))
            continue
        middle = (one[1] + other[1]) / 2
        commands.append(("C", ((one[0], middle), (other[0], middle), other)))
    return Arrow(tuple(commands))


def _rounded(points: list[tuple[float, float]]) -> list[tuple[str, tuple[tuple[float, float], ...]]]:
    """Return lines with round corners."""
    found: list[tuple[str, tuple[tuple[float, float], ...]]] = []
    for before, at, after in zip(points, points[1:], points[2:], strict=False):
        found += [("L", (_toward(at, before),)), ("Q", (at, _toward(at, after)))]
    return [*found, ("L", (points[-1],))]


def _toward(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    """Return the point at the radius of a corner from `start` on the way to `end`."""
    long = abs(end[0] - start[0]) + abs(end[1] - start[1])  # every part is horizontal or vertical
    share = min(ROUND, long / 2) / long if long else 0.0
    return (start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]))
