"""The graphs of the page: a Graph view in, elements and style of a cytoscape graph out. Colours repeat what the shapes
show.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from neuraldbg.dashboard.page.tab import Drawing
from neuraldbg.show.format.safe_text import plain
from neuraldbg.show.forms import Graph

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene

COLUMN, ROW = 210, 62
"""Pixels between neighbours, horizontally and vertically."""
TALLEST = 620
"""Height of a graph on the page at most, pixels."""
INK = {"light": "#1b1f24", "dark": "#e8eaed"}
PAPER = {"light": "#ffffff", "dark": "#16181d"}
FAINT = {"light": "#8a929c", "dark": "#6d7681"}
COLOURS = {"cause": "#D55E00", "guilty": "#D55E00", "event": "#E69F00", "bad": "#E69F00", "symptom": "#CC79A7"}
"""Colours by role (Okabe and Ito's); a layer that is healthy or was not read has none."""
SHAPES = {"cause": "octagon", "symptom": "diamond", "guilty": "octagon", "bad": "hexagon", "unseen": "ellipse"}

BY_HAND = "Dragging moves the graph; Ctrl and the wheel zoom"


def connected(scene: Scene, name: str, title: str = "", **choice: Any) -> Drawing:
    """Draw a view that is a graph as a pane."""
    view = scene.view(name, **choice)
    assert isinstance(view, Graph)
    heading = title or view.title
    if view.empty:
        return Drawing(heading, empty=view.empty, notes=view.notes)
    return Drawing(heading, elements(view, scene.layer, scene.step), (*view.notes, BY_HAND))


def height_of(drawing: Drawing) -> int:
    """Return the height of a graph in pixels. A longer graph is scaled down to it, and can be zoomed."""
    levels = {round(element["position"]["y"]) for element in drawing.content or () if "position" in element}
    return min(TALLEST, ROW * len(levels) + 80)


def elements(graph: Graph, layer: str | None, step: int | None) -> list[dict[str, Any]]:
    """Return nodes and edges. Labels are drawn on a canvas, so that any text in them stays text."""
    levels = Counter(round(node.y, 3) for node in graph.nodes)
    width, height = COLUMN * max(levels.values(), default=1), ROW * max(1, len(levels) - 1)
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
    return [{"selector": "node", "style": node}, {"selector": "edge", "style": edge}, *roles, *shapes, chosen]
