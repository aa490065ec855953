"""Nodes and arrows: the causal chain, or the data flow of a model with the health of each layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from neuraldbg.show.format.phrases import ROLES as WORDS
from neuraldbg.show.forms import Graph
from neuraldbg.show.static.axis import inches, legend
from neuraldbg.show.static.boxes import PAD_IN, TEXT_PT, Boxes, place
from neuraldbg.show.static.form import Form
from neuraldbg.show.static.labels import POINTS, fitted, width_of
from neuraldbg.show.static.routes import Frame, Point, Routes, beside, crosses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from neuraldbg.show.forms import Link, Node
    from neuraldbg.show.static.theme import Theme

WHY_PT = 7.0
DOT_PT = 7.0
WHY_IN = 1.3
"""Largest width in inches of the words at an arrow."""
TALLEST_IN, ROW_IN = 20.0, 0.55
"""Largest height of a picture, and what a row of boxes of one line takes of it."""


@dataclass(frozen=True)
class Role:
    """The look of the nodes of one role: colour, border, shape and sign have the same meaning."""

    word: str
    """Name in the legend."""
    sign: str
    marker: str
    """Marker if there is no room for boxes."""
    border: float
    box: str = "round,pad=0,rounding_size=0.08"
    style: str = "-"


ROLES = {
    "cause": Role(WORDS["cause"], "◆", "D", 2.4, "square,pad=0"),
    "event": Role(WORDS["event"], "●", "o", 1.2),
    "symptom": Role(WORDS["symptom"], "✗", "X", 2.4, "square,pad=0"),
    "guilty": Role(WORDS["guilty"], "◆", "D", 2.4, "square,pad=0"),
    "bad": Role(WORDS["bad"], "●", "o", 1.6),
    "untrained": Role(WORDS["untrained"], "∅", "v", 1.6, style="--"),
    "healthy": Role(WORDS["healthy"], "✓", "s", 1.0),
    "unseen": Role(WORDS["unseen"], "?", "P", 1.0, style=":"),
}
OTHER = Role("other", "·", "o", 1.0)
URGENT = ("cause", "guilty", "symptom", "event", "bad", "untrained")
"""Roles whose names come first if not all fit."""


def size(view: Graph) -> tuple[float, float]:
    """Return a size with an inch for each level, and for each node of the widest one a good part of a hand."""
    rows = Counter(round(node.y, 6) for node in view.nodes)
    widest = max(rows.values(), default=1)
    high = max(min(11.0, 1.3 + 0.85 * len(rows)), min(TALLEST_IN, 1.8 + ROW_IN * len(rows)))
    return min(11.0, max(7.0, 1.7 * widest)), high


def draw(figure: Figure, view: Graph, theme: Theme) -> None:
    """Draw boxes with names and arrows between them; a graph too large for boxes as dots with the names that fit."""
    axes = figure.add_subplot()
    axes.set_axis_off()
    colours = _colours(theme)
    present = [role for role in ROLES if any(node.role == role for node in view.nodes)]
    keys = [
        Line2D([], [], marker=ROLES[role].marker, color=colours[role], linestyle="none", label=ROLES[role].word)
        for role in present
    ]
    legend(axes, theme, keys, below=True, drop_pt=6)
    # What is drawn from here on is fitted into the room that the title, the legend and the notes leave.
    wide, high = inches(axes)
    axes.set_xlim(0, wide)
    axes.set_ylim(high, 0)
    boxes = place(view.nodes, wide, high)
    (_dots if boxes.dots else _boxes)(axes, view, boxes, theme)
    for artist in axes.get_children():
        if artist is not axes.get_legend():
            artist.set_in_layout(False)


def _colours(theme: Theme) -> dict[str, str]:
    blue, _, green, _, orange, _ = theme.calm
    return {
        "cause": theme.strong,
        "event": blue,
        "symptom": theme.ink,
        "guilty": theme.strong,
        "bad": orange,
        "untrained": orange,
        "healthy": green,
        "unseen": theme.muted,
    }


def _boxes(axes: Axes, view: Graph, boxes: Boxes, theme: Theme) -> None:
    for node in view.nodes:
        x, y = boxes.centres[node.id]
        role = ROLES.get(node.role, OTHER)
        look: dict[str, Any] = {"edgecolor": _colours(theme).get(node.role, theme.muted), "facecolor": theme.ground}
        corner = (x - boxes.width / 2, y - boxes.height / 2)
        frame = FancyBboxPatch(corner, boxes.width, boxes.height, boxstyle=role.box, zorder=3, clip_on=False, **look)
        frame.set(linewidth=role.border, linestyle=role.style)
        axes.add_artist(frame)
        weight = "bold" if node.role in URGENT[:2] else "normal"
        said = axes.text(x, y, _in_box(node, role, boxes), ha="center", va="center", color=theme.ink, zorder=4)
        said.set(fontsize=TEXT_PT, fontweight=weight, linespacing=1.15)
    routes = Routes(boxes.centres, (boxes.width, boxes.height), axes.get_xlim()[1])
    known = [link for link in view.links if link.source in boxes.centres and link.target in boxes.centres]
    ways = [(link, routes.way(link.source, link.target)) for link in known if link.source != link.target]
    for _, way in ways:
        look = {"arrowstyle": "-|>", "mutation_scale": 11, "color": theme.muted, "linewidth": 1.2, "fill": True}
        arrow = FancyArrowPatch(path=Path(way), zorder=2, joinstyle="round", **look)
        axes.add_artist(arrow)
    _name_ways(axes, ways, boxes, theme)


def _in_box(node: Node, role: Role, boxes: Boxes) -> str:
    """Return the sign and the label and, if there is room, the detail that the label does not have."""
    room, bold = boxes.width - 2 * PAD_IN, node.role in URGENT[:2]
    label = fitted(f"{role.sign}\N{NO-BREAK SPACE}{node.label}", room, TEXT_PT, lines=boxes.lines, bold=bold)
    left = boxes.lines - 1 - label.count("\n")
    if not left or not node.detail or node.detail in node.label:
        return label
    return f"{label}\n{fitted(node.detail, room, TEXT_PT, lines=left, bold=bold)}"


def _name_ways(axes: Axes, ways: Sequence[tuple[Link, list[Point]]], boxes: Boxes, theme: Theme) -> None:
    """Write beside each arrow what leads along it, where that touches no box, no arrow and no other words."""
    taken: list[Frame] = []
    right, bottom = axes.get_xlim()[1], axes.get_ylim()[0]
    for link, way in ways:
        if not link.why:
            continue
        text = fitted(link.why, WHY_IN, WHY_PT)
        for frame in beside(way, width_of(text, WHY_PT), 1.2 * WHY_PT / POINTS):
            left, top, end, low = frame
            inside = left >= 0 and end <= right and top >= 0 and low <= bottom
            if not inside or not boxes.clear(left - 0.04, top, end + 0.04, low):
                continue
            if any(_meet(frame, other) for other in taken) or any(crosses(other, frame) for _, other in ways):
                continue
            middle = (top + low) / 2
            axes.text(left, middle, text, ha="left", va="center", fontsize=WHY_PT, color=theme.muted, zorder=4)
            taken.append(frame)
            break


def _meet(a: Frame, b: Frame) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _dots(axes: Axes, view: Graph, boxes: Boxes, theme: Theme) -> None:
    at = boxes.centres
    ways = [(at[link.source], at[link.target]) for link in view.links if link.source in at and link.target in at]
    axes.add_collection(LineCollection(ways, colors=theme.crowd, linewidths=0.8, zorder=1), autolim=False)
    colours = _colours(theme)
    for node in view.nodes:
        role, urgent = ROLES.get(node.role, OTHER), node.role in URGENT
        look: dict[str, Any] = {"color": colours.get(node.role, theme.muted), "zorder": 4 if urgent else 3}
        size_pt = max(boxes.dot_pt, 5.0) if urgent else boxes.dot_pt
        axes.plot(*at[node.id], role.marker, markersize=size_pt, clip_on=False, **look)
    wide = axes.get_xlim()[1]
    taken = [(x - 0.06, y - 0.06, x + 0.06, y + 0.06) for x, y in at.values()]
    for node in _urgent_first(view.nodes):
        x, y = at[node.id]
        bold = node.role in URGENT[:2]
        text = fitted(node.label, min(2.2, wide / 2), DOT_PT, bold=bold)
        long, high = width_of(text, DOT_PT, bold=bold), 0.6 * DOT_PT / POINTS
        for left in (x + 0.09, x - 0.09 - long):
            frame = (left, y - high, left + long, y + high)
            if left >= 0 and frame[2] <= wide and not any(_meet(frame, other) for other in taken):
                said = axes.text(left, y, text, va="center", fontsize=DOT_PT, color=theme.ink, zorder=4)
                said.set_fontweight("bold" if bold else "normal")
                said.set_bbox({"facecolor": theme.ground, "edgecolor": "none", "pad": 0.5})
                taken.append(frame)
                break


def _urgent_first(nodes: Sequence[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: URGENT.index(node.role) if node.role in URGENT else len(URGENT))


FORM = Form(Graph, size, draw)
