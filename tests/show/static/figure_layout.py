"""What a reader would see of a figure: what lies outside the picture, and what lies upon something else."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

SLACK = 1.0
"""Dots: half a line's width may stand out."""


def settled(figure):
    """Lay the figure out and return what measures it."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    return figure.canvas.get_renderer()


def texts(figure):
    """Every word of the picture with its frame, the signs at the axes included."""
    renderer = settled(figure)
    found = list(figure.texts)
    for axes in figure.axes:
        found += axes.texts
        found += [axes.xaxis.label, axes.yaxis.label] if axes.axison else []
        for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
            found += [
                tick.label1
                for tick in axis.get_major_ticks()
                if axes.axison and tick.label1.get_visible() and low <= tick.get_loc() <= high
            ]
        if axes.get_legend() is not None:
            found += axes.get_legend().get_texts()
    shown = [text for text in found if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in shown]


def clipped(figure):
    """Words that do not lie in the picture as a whole."""
    page = figure.bbox.padded(SLACK)
    return [
        text
        for text, frame in texts(figure)
        if not (page.x0 <= frame.x0 and frame.x1 <= page.x1 and page.y0 <= frame.y0 and frame.y1 <= page.y1)
    ]


def upon_data(figure):
    """Legends, titles and marks' labels that lie over a panel."""
    renderer = settled(figure)
    panels = [axes.get_window_extent(renderer).padded(-SLACK) for axes in figure.axes]
    frames = {"title": figure._suptitle, "notes": figure._supxlabel}
    for i, axes in enumerate(figure.axes):
        frames[f"legend {i}"] = axes.get_legend()
        if axes.axison:
            frames |= {f"label {text.get_text()!r}": text for text in axes.texts}
    return [
        name
        for name, artist in frames.items()
        if artist is not None and any(artist.get_window_extent(renderer).overlaps(panel) for panel in panels)
    ]


def overlapping(figure):
    """Pairs of words of which one lies upon the other."""
    found = [(text, frame.padded(-SLACK)) for text, frame in texts(figure)]
    return [(a, b) for i, (a, first) in enumerate(found) for b, second in found[i + 1 :] if first.overlaps(second)]


def crosses(way, frame):
    """True if a way of straight parts leads through a rectangle (left, top, right, bottom), by close points."""
    for (x0, y0), (x1, y1) in pairwise(way):
        share = np.linspace(0, 1, 400)
        x, y = x0 + share * (x1 - x0), y0 + share * (y1 - y0)
        if ((x > frame[0]) & (x < frame[2]) & (y > frame[1]) & (y < frame[3])).any():
            return True
    return False
