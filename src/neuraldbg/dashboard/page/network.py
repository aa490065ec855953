"""The graphs of the page: a Graph view in, elements and style of a cytoscape graph out. Colours repeat what the shapes
show.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from neuraldbg.dashboard.page.tab import Drawing
from neuraldbg.show.format.phrases import ROLES
from neuraldbg.show.format.safe_text import plain
from neuraldbg.show.forms import Graph

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene

COLUMN, ROW, CLOSE, MANY = 210, 62, 42, 10
"""Pixels between neighbours, horizontally and vertically; the latter in a graph of more than MANY levels."""
TALLEST = 1100
"""Height of a graph on the page at most, pixels."""
INK = {"light": "#1b1f24", "dark": "#e8eaed"}
PAPER = {"light": "#ffffff", "dark": "#16181d"}
FAINT = {"light": "#8a929c", "dark": "#6d7681"}
COLOURS = {"cause": "#D55E00", "guilty": "#D55E00", "event": "#E69F00", "bad": "#E69F00", "symptom": "#CC79A7"}
COLOURS |= {"untrained": "#E69F00"}
"""Colours by role (Okabe and Ito's); a layer that is healthy or was not read has none."""
SHAPES = {"cause": "octagon", "symptom": "diamond", "guilty": "octagon", "bad": "hexagon"}
SHAPES |= {"untrained": "vee", "unseen": "rectangle"}
"""Shapes of cytoscape by role; others are circles."""
MIDDLE = 0.499
"""Position of the middle of a graph, from 0 to 1."""
BY_HAND = "Drag to move the graph; Ctrl and the wheel zoom"


def connected(scene: Scene, name: str, title: str = "", **choice: Any) -> Drawing:
    """Draw a view that is a graph as a pane."""
    view = scene.view(name, **choice)
    assert isinstance(view, Graph)
    heading = title or view.title
    if view.empty:
        return Drawing(heading, empty=view.empty, notes=view.notes)
    return Drawing(heading, elements(view, scene.layer, scene.step), (*view.notes, _legend(view), BY_HAND))


def _legend(view: Graph) -> str:
    """Write the meaning of each shape in a graph."""
    here = dict.fromkeys(node.role for node in view.nodes)
    names = {role: "arrowhead" if shape == "vee" else shape for role, shape in SHAPES.items()}
    told = "; ".join(f"{names.get(role, 'circle')}: {ROLES[role]}" for role in ROLES if role in here)
    return f"{told[:1].upper()}{told[1:]}"


def height_of(drawing: Drawing) -> int:
    """Return the height of a graph in pixels. A longer graph is scaled down to it, and can be zoomed."""
    levels = {round(element["position"]["y"]) for element in drawing.content or () if "position" in element}
    return min(TALLEST, _row(len(levels)) * len(levels) + 80)


def _row(levels: int) -> int:
    return ROW if levels <= MANY else CLOSE


def elements(graph: Graph, layer: str | None, step: int | None) -> list[dict[str, Any]]:
    """Return nodes and edges. Labels are drawn on a canvas, so that any text in them stays text."""
    levels = Counter(round(node.y, 3) for node in graph.nodes)
    width, height = COLUMN * max(levels.values(), default=1), _row(len(levels)) * max(1, len(levels) - 1)
    nodes = [
        {
            "data": {
                "id": node.id,
                "label": plain(node.label),
                "layer": node.layer,
                "step": node.step,
            },
            "position": {"x": node.x * width, "y": node.y * height},
            "classes": " ".join(
                [
                    node.role,
                    *(["west"] if node.x < MIDDLE else []),
                    *(["chosen"] if layer is not None and node.layer == layer and node.step in {None, step} else []),
                ]
            ),
        }
        for node in graph.nodes
    ]
    edges = [{"data": {"source": link.source, "target": link.target, "label": plain(link.why)}} for link in graph.links]
    return [*nodes, *edges]


def stylesheet(theme: str) -> list[dict[str, Any]]:
    """Return the cytoscape style sheet for a theme."""
    ink, paper, faint = INK[theme], PAPER[theme], FAINT[theme]
    node = {
        "label": "data(label)",
        "color": ink,
        "font-size": 12,
        "font-family": "system-ui, sans-serif",
        "text-wrap": "wrap",
        "text-max-width": COLUMN - 20,
        "text-halign": "right",
        "text-valign": "center",
        "text-margin-x": 6,
        # Nodes lie above arrows: an arrow that passes goes behind the label, not through it.
        "text-background-color": paper,
        "text-background-opacity": 1,
        "background-color": paper,
        "border-color": faint,
        "border-width": 2,
        "width": 18,
        "height": 18,
    }
    edge = {
        "curve-style": "bezier",
        "target-arrow-shape": "triangle",
        "line-color": faint,
        "target-arrow-color": faint,
        "width": 1.5,
        "label": "data(label)",
        "color": faint,
        "font-size": 10,
        "text-background-color": paper,
        "text-background-opacity": 1,
    }
    roles = [
        {"selector": f".{role}", "style": {"background-color": colour, "border-color": colour}}
        for role, colour in COLOURS.items()
    ]
    shapes = [{"selector": f".{role}", "style": {"shape": shape}} for role, shape in SHAPES.items()]
    chosen = {"selector": ".chosen", "style": {"border-width": 5, "border-color": ink, "font-weight": "bold"}}
    # Arrows run between the columns: labels of the left half stand outside of them.
    west = {"selector": ".west", "style": {"text-halign": "left", "text-margin-x": -6}}
    # Set by stops.js: breakpoints of the page, and the layer at which the training waits.
    stops = [
        {"selector": ".stop", "style": {"underlay-color": "#D55E00", "underlay-opacity": 0.55, "underlay-padding": 6}},
        {"selector": ".here", "style": {"underlay-color": "#0072B2", "underlay-opacity": 0.55, "underlay-padding": 6}},
    ]
    return [
        {"selector": "node", "style": node},
        {"selector": "edge", "style": edge},
        west,
        *roles,
        *shapes,
        chosen,
        *stops,
    ]
