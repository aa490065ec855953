"""Nodes and arrows: the causal chain, or the data flow of a model with the health of its layers."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from neuraldbg.show.format.safe_text import GUILTY
from neuraldbg.show.interactive.frame import axis, framed, graph_objects, with_notes
from neuraldbg.show.interactive.words import safe

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from neuraldbg.show.forms import Graph, Link, Node
    from neuraldbg.show.static.theme import Theme

SYMBOLS = {
    "cause": "diamond",
    "event": "circle",
    "symptom": "x",
    "healthy": "circle",
    "bad": "square",
    "guilty": "star",
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
ARROWS = 300
"""With more links than this they are plain lines."""


def figure(view: Graph, theme: Theme) -> go.Figure:
    """Return the graph; each role has a shape and a colour, which the legend names."""
    made = framed(view, theme, "graph")
    at = {node.id: node for node in view.nodes}
    links = [link for link in view.links if link.source in at and link.target in at]
    _draw_links(made, links, at, theme)
    for role in dict.fromkeys(node.role for node in view.nodes):
        _draw_role(made, [node for node in view.nodes if node.role == role], view, role, theme)
    bare: dict[str, Any] = {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "showticklabels": False,
        "ticks": "",
    }
    ranks = len({node.y for node in view.nodes})
    places = [node.x for node in view.nodes] or [0.0]
    one_column = max(places) - min(places) < 0.05  # its labels have all the width on the right
    across = [min(places) - 0.05, min(places) + 0.9] if one_column else [-0.05, 1.25]
    made.update_layout(
        height=min(TALLEST, max(LEAST, RANK * ranks + AROUND)),
        xaxis=axis(theme, with_notes("", view, theme), range=across, **bare),
        yaxis=axis(theme, range=[1.08, -0.08], **bare),
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
            name=GUILTY if role == "guilty" else safe(role),
        )
    )


def _draw_links(made: go.Figure, links: list[Link], at: dict[str, Node], theme: Theme) -> None:
    if len(links) <= ARROWS:
        made.update_layout(
            annotations=[
                {
                    "x": at[link.target].x,
                    "y": at[link.target].y,
                    "ax": at[link.source].x,
                    "ay": at[link.source].y,
                    "axref": "x",
                    "ayref": "y",
                    "xref": "x",
                    "yref": "y",
                    "text": "",
                    "showarrow": True,
                    "arrowhead": 2,
                    "arrowwidth": 1.3,
                    "arrowcolor": theme.muted,
                    "standoff": 9,
                    "startstandoff": 9,
                }
                for link in links
            ]
        )
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
    made.add_trace(
        graph_objects().Scatter(  # why the one led to the other, at the middle of the arrow
            x=[(at[link.source].x + at[link.target].x) / 2 for link in told],
            y=[(at[link.source].y + at[link.target].y) / 2 for link in told],
            text=[safe(link.why) for link in told],
            mode="markers",
            marker={"size": 12, "opacity": 0.0},
            hovertemplate="%{text}<extra></extra>",
            customdata=[[at[link.target].layer, at[link.target].step] for link in told],
            showlegend=False,
        )
    )


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
