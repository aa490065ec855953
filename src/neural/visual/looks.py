"""The colours of a picture by meaning, on light and on dark ground; families have Okabe and Ito's (2008)."""

from __future__ import annotations

LIGHT = {
    "ground": "#ffffff",
    "ink": "#1b1f24",
    "muted": "#4d5560",
    "line": "#7b8490",
    "layer": "#f6f7f9",
    "layer-edge": "#b9c0ca",
    "input": "#e3eef7",
    "input-edge": "#0072b2",
    "loss": "#fbe9e0",
    "loss-edge": "#d55e00",
    "block": "#ffffff",
    "block-edge": "#8a929c",
    "panel": "#f6f7f9",
}
DARK = {
    "ground": "#16181d",
    "ink": "#f2f2f2",
    "muted": "#b4b9c4",
    "line": "#8a929c",
    "layer": "#22252c",
    "layer-edge": "#4a4f5a",
    "input": "#182d3d",
    "input-edge": "#56b4e9",
    "loss": "#3a2218",
    "loss-edge": "#f0742b",
    "block": "#1b1e24",
    "block-edge": "#7c838f",
    "panel": "#1f2229",
}
FAMILY = {
    "activation": "#999999",
    "attention": "#cc79a7",
    "convolution": "#0072b2",
    "dense": "#009e73",
    "dropping": "#999999",
    "embedding": "#d55e00",
    "excitation": "#56b4e9",
    "merging": "#56b4e9",
    "normalization": "#c9b400",
    "pooling": "#e69f00",
    "recurrent": "#cc79a7",
    "reshaping": "#999999",
    "wrapping": "#56b4e9",
}
"""The colour of the stripe of a layer: it only repeats what the layer's name says."""
EDGES = {"dot": "line", "sum": "line"}
"""The names of the colours of edges of what has none of its own."""


def edge(look: str) -> str:
    """Return the name of the colour of the edge of a shape."""
    return EDGES.get(look, f"{look}-edge")


def face(look: str) -> str:
    """Return the name of the colour of a shape."""
    return {"dot": "line", "sum": "ground"}.get(look, look)
