"""Nodes and arrows: the causal chain, or the data flow of a model with the health of its layers."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuraldbg.show.format.phrases import ROLES
from neuraldbg.show.interactive.frame import axis, framed, graph_objects, with_notes
from neuraldbg.show.interactive.words import safe
from neuraldbg.show.static.routes import Routes

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from neuraldbg.show.forms import Graph, Link, Node
    from neuraldbg.show.static.routes import Point
    from neuraldbg.show.static.theme import Theme

SYMBOLS = {
    "cause": "diamond",
    "event": "circle",
    "symptom": "x",
    "healthy": "circle",
    "bad": "square",
    "guilty": "star",
    "untrained": "triangle-down",
    "unseen": "circle-open",
}
LABEL, DETAIL = 32, 60
"""Largest length in characters of a line of a label, and of the pointer's text."""
ACROSS = 100
"""Characters that fit beside each other in a figure of usual width."""
SHORTEST = 5
"""A label that has room for fewer characters is left to the pointer."""
RANK, AROUND, LEAST, TALLEST = 46, 140, 300, 1600
"""Sizes in pixels: a rank of nodes, the surroundings of the graph, least height, largest height."""
BORDER = 0.08
"""What the vertical axis shows beyond the first and the last rank."""
PLOT, DOTS = 800, 96
"""Pixels: usual width of the plot area, and those of an inch."""
MARKER, LETTER = 9, 6.4
"""Pixels: from the middle of a marker to its border, and a letter of a label."""
ARROWS = 300
"""With more links than this they are plain lines."""


def figure(view: Graph, theme: Theme) -> go.Figure:
    """Return the graph; each role has a shape and a colour, which the legend names."""
    made = framed(view, theme, "graph")
    at = {node.id: node for node in view.nodes}
    links = [link for link in view.links if link.source in at and link.target in at]
    ranks = len({round(node.y, 6) for node in view.nodes})
    high = min(TALLEST, max(LEAST, RANK * ranks + AROUND))
    places = [node.x for node in view.nodes] or [0.0]
    one_column = max(places) - min(places) < 0.05  # its labels have all the width on the right
    across = [min(places) - 0.05, min(places) + 0.9] if one_column else [-0.05, 1.25]
    _draw_links(made, links, at, _Page(across[0], across[1], high), theme)
    for role in dict.fromkeys(node.role for node in view.nodes):
        _draw_role(made, [node for node in view.nodes if node.role == role], view, role, theme)
    bare: dict[str, Any] = {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "showticklabels": False,
        "ticks": "",
    }
    made.update_layout(
        height=high,
        xaxis=axis(theme, with_notes("", view, theme), range=across, **bare),
        yaxis=axis(theme, range=[1 + BORDER, -BORDER], **bare),
        showlegend=True,
    )
    return made


def _rooms(nodes: tuple[Node, ...]) -> dict[str, int]:
    """Return the number of characters for each label on the right of its node, before the next node of its rank."""
    ranks: dict[float, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: node.x):
        ranks.setdefault(round(node.y, 3), []).append(node)
    found = {}
    for rank in ranks.values():
        for node, after in zip(rank, [*(other.x for other in rank[1:]), 1.25], strict=True):
            found[node.id] = min(LABEL, int((after - node.x) * ACROSS) - 3)
    return found


def _draw_role(made: go.Figure, nodes: list[Node], view: Graph, role: str, theme: Theme) -> None:
    colours = {
        "cause": theme.strong,
        "guilty": theme.strong,
        "symptom": theme.ink,
        "bad": theme.calm[4],
        "event": theme.calm[4],
        "untrained": theme.calm[4],
        "healthy": theme.calm[2],
        "unseen": theme.crowd,
    }
    rooms = _rooms(view.nodes)
    colour = colours.get(role, theme.calm[0])
    made.add_trace(
        graph_objects().Scatter(
            x=[node.x for node in nodes],
            y=[node.y for node in nodes],
            mode="markers+text",
            marker={
                "symbol": SYMBOLS.get(role, "circle"),
                "size": 15,
                "color": [theme.strong if node.layer in view.guilty and node.layer else colour for node in nodes],
                "line": {"color": theme.ink, "width": 1},
            },
            text=[_label(node.label, rooms[node.id]) for node in nodes],
            textposition="middle right",
            textfont={"size": 11, "color": theme.ink},
            customdata=[[node.layer, node.step, _told(node)] for node in nodes],
            hovertemplate="%{customdata[2]}<extra></extra>",
            name=ROLES.get(role, safe(role)),
        )
    )


@dataclass(frozen=True)
class _Page:
    """The plot area of a figure of usual width, for the conversion of its coordinates to inches."""

    left: float
    right: float
    high: float
    """Height of the figure in pixels."""

    def inches(self, x: float, y: float) -> Point:
        """Return a place in inches from the top left."""
        return (x - self.left) * self._across, (y + BORDER) * self._down

    def data(self, place: Point) -> Point:
        """Return a place in the coordinates of the axes."""
        return place[0] / self._across + self.left, place[1] / self._down - BORDER

    @property
    def wide(self) -> float:
        """Width of the plot area in inches."""
        return PLOT / DOTS

    @property
    def _across(self) -> float:
        return self.wide / (self.right - self.left)

    @property
    def _down(self) -> float:
        return max(self.high - AROUND, 100) / DOTS / (1 + 2 * BORDER)


def _ways(links: list[Link], at: dict[str, Node], page: _Page) -> list[tuple[Link, list[Point]]]:
    """Return the corners of each arrow, in the coordinates of the axes: beside markers and labels, never through one.

    A marker with its label on the right is a box; arrows begin and end at the marker.
    """
    rooms = _rooms(tuple(at.values()))
    longest = max((len(line) for n in at.values() for line in _label(n.label, rooms[n.id]).split("<br>")), default=0)
    wide = (2 * MARKER + LETTER * longest) / DOTS
    shift = wide / 2 - MARKER / DOTS
    spots = {name: page.inches(node.x, node.y) for name, node in at.items()}
    routes = Routes({n: (x + shift, y) for n, (x, y) in spots.items()}, (wide, 2 * MARKER / DOTS), page.wide)
    found = []
    for link in links:
        if link.source != link.target:
            way = routes.way(link.source, link.target)
            ends = [(spots[link.source][0], way[0][1]), *way[1:-1], (spots[link.target][0], way[-1][1])]
            found.append((link, [page.data(place) for place in ends]))
    return found


def _draw_links(made: go.Figure, links: list[Link], at: dict[str, Node], page: _Page, theme: Theme) -> None:
    middle = {}
    if len(links) <= ARROWS:
        arrows, shapes = [], []
        for link, way in _ways(links, at, page):
            (x0, y0), (x1, y1) = way[-2:]
            corners = {"x": x1, "y": y1, "ax": x0, "ay": y0, "axref": "x", "ayref": "y", "xref": "x", "yref": "y"}
            look = {"showarrow": True, "arrowhead": 2, "arrowwidth": 1.3, "arrowcolor": theme.muted, "text": ""}
            arrows.append({**corners, **look})
            if len(way) > 2:
                path = "M" + "L".join(f"{x:.5f},{y:.5f}" for x, y in way[:-1])
                shapes.append({"type": "path", "path": path, "line": {"color": theme.muted, "width": 1.3}})
            (a, b), (c, d) = way[len(way) // 2 - 1 : len(way) // 2 + 1]
            middle[link.source, link.target] = ((a + c) / 2, (b + d) / 2)
        made.update_layout(annotations=arrows, shapes=shapes)
    else:
        ends = [(at[link.source], at[link.target]) for link in links]
        made.add_trace(
            graph_objects().Scatter(
                x=[x for a, b in ends for x in (a.x, b.x, None)],
                y=[y for a, b in ends for y in (a.y, b.y, None)],
                mode="lines",
                line={"color": theme.crowd, "width": 0.8},
                hoverinfo="skip",
                showlegend=False,
            )
        )
    told = [link for link in links if link.why]
    halves = [middle.get((link.source, link.target)) or _half(at[link.source], at[link.target]) for link in told]
    made.add_trace(
        graph_objects().Scatter(  # why the one led to the other, at the middle of the arrow
            x=[x for x, _ in halves],
            y=[y for _, y in halves],
            text=[safe(link.why) for link in told],
            mode="markers",
            marker={"size": 12, "opacity": 0.0},
            hovertemplate="%{text}<extra></extra>",
            customdata=[[at[link.target].layer, at[link.target].step] for link in told],
            showlegend=False,
        )
    )


def _half(a: Node, b: Node) -> Point:
    return (a.x + b.x) / 2, (a.y + b.y) / 2


def _told(node: Node) -> str:
    parts = [f"<b>{_lines(node.label, DETAIL)}</b>"]
    if node.layer:
        parts.append(f"layer {safe(node.layer)}")
    if node.step is not None:
        parts.append(f"step {node.step:,}")
    if node.detail:
        parts.append(_lines(node.detail, DETAIL))
    return "<br>".join(parts)


def _label(words: str, room: int) -> str:
    """Return a label of at most three lines; a long path loses its beginning, which its neighbours share."""
    if room < SHORTEST:
        return ""
    if " " not in words and len(words) > room:
        return safe(f"…{words[1 - room :]}")
    return "<br>".join(safe(line) for line in textwrap.wrap(words, room, max_lines=3, placeholder=" …"))


def _lines(words: str, width: int) -> str:
    return "<br>".join(safe(line) for line in textwrap.wrap(words, width, max_lines=6, placeholder=" …"))
