"""Nodes and arrows: the causal chain, or the data flow of a model with the health of its layers."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from neuraldbg.show.interactive.frame import axis, framed, graph_objects, with_notes
from neuraldbg.show.interactive.look import safe

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from neuraldbg.show.interactive.look import Look
    from neuraldbg.show.views.view import Graph, Link, Node

SYMBOLS = {
    "cause": "diamond",
    "event": "circle",
    "symptom": "x",
    "healthy": "circle",
    "bad": "square",
    "guilty": "star",
    "unseen": "circle-open",
}
LABEL, DETAIL = 24, 60
"""Characters of a line of a label, and of what the pointer shows."""
WRITTEN = 40
"""With more nodes than this labels would lie upon each other; the pointer shows them."""
ARROWS = 300
"""With more links than this they are plain lines."""


def figure(view: Graph, look: Look) -> go.Figure:
    """Return the graph; each role has a shape and a colour, which the legend names."""
    made = framed(view, look, "graph")
    at = {node.id: node for node in view.nodes}
    links = [link for link in view.links if link.source in at and link.target in at]
    _draw_links(made, links, at, look)
    for role in dict.fromkeys(node.role for node in view.nodes):
        _draw_role(made, [node for node in view.nodes if node.role == role], view, role, look)
    made.update_layout(
        xaxis=axis(
            look, with_notes("", view, look), range=[-0.12, 1.12], showgrid=False, zeroline=False, showticklabels=False
        ),
        yaxis=axis(look, range=[1.12, -0.12], showgrid=False, zeroline=False, showticklabels=False),
        legend={"orientation": "h", "yref": "container", "y": 0.0, "yanchor": "bottom"},
        showlegend=True,
    )
    return made


def _draw_role(made: go.Figure, nodes: list[Node], view: Graph, role: str, look: Look) -> None:
    colours = {
        "cause": look.strong,
        "guilty": look.strong,
        "symptom": look.ink,
        "bad": look.calm[4],
        "event": look.calm[4],
        "healthy": look.calm[2],
        "unseen": look.crowd,
    }
    colour = colours.get(role, look.calm[0])
    made.add_trace(
        graph_objects().Scatter(
            x=[node.x for node in nodes],
            y=[node.y for node in nodes],
            mode="markers+text" if len(view.nodes) <= WRITTEN else "markers",
            marker={
                "symbol": SYMBOLS.get(role, "circle"),
                "size": 15,
                "color": [look.strong if node.layer in view.guilty and node.layer else colour for node in nodes],
                "line": {"color": look.ink, "width": 1},
            },
            text=[_lines(node.label, LABEL) for node in nodes],
            textposition=["middle right" if node.x <= 0.6 else "middle left" for node in nodes],
            textfont={"size": 11, "color": look.ink},
            customdata=[[node.layer or "", node.step, _told(node)] for node in nodes],
            hovertemplate="%{customdata[2]}<extra></extra>",
            name=safe(role),
        )
    )


def _draw_links(made: go.Figure, links: list[Link], at: dict[str, Node], look: Look) -> None:
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
                    "arrowcolor": look.muted,
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
                line={"color": look.crowd, "width": 0.8},
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
            customdata=[[at[link.target].layer or "", at[link.target].step] for link in told],
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


def _lines(words: str, width: int) -> str:
    return "<br>".join(safe(line) for line in textwrap.wrap(words, width, max_lines=6, placeholder=" …"))
