"""Moments through the panels, and a lane of events above them: nothing of it lies over the data but a thin line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patheffects import withStroke

from neuraldbg.show.static.axis import LOW_IN, TICK_PT, dress, page
from neuraldbg.show.static.labels import fitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from neuraldbg.show.forms import Mark
    from neuraldbg.show.static.theme import Theme

DASHES: dict[str, Any] = {"failure": (0, (4, 2)), "cause": (0, (4, 2, 1, 2)), "chosen": (0, (1, 2))}
"""Line style of each role of a moment; events are in the lane."""
MOMENT_PT = 9.0
CLEAR_PT = 9.0
"""Distance in points above the top edge, where non-finite values are marked."""
ROWS, FEW_ROWS = 8, 2
"""Kinds of events that have a row of the lane each; the others share the last. In a low picture there are few."""
ROW_IN = 0.17
LEAST = 0.008
"""A shorter event is drawn with this share of the width, to be seen at all."""


def draw_moments(panels: Sequence[Axes], marks: Sequence[Mark], theme: Theme) -> None:
    """Draw moments as lines through all panels and say above the first what they are; those out of sight are left out.

    The x axis is final when this is called.
    """
    low, high = panels[0].get_xlim()
    level = 0
    for mark in marks:
        if mark.role not in DASHES or not low <= mark.step <= high:
            continue
        for axes in panels:
            line = axes.axvline(mark.step, color=theme.ink, linewidth=1.2, linestyle=DASHES[mark.role], zorder=4)
            line.set_path_effects([withStroke(linewidth=3, foreground=theme.ground, alpha=0.6)])
        share = (mark.step - low) / (high - low)
        panels[0].annotate(
            fitted(mark.label, 0.5 * page(panels[0]).get_figwidth(), MOMENT_PT, bold=True),
            (mark.step, 1.0),
            xycoords=panels[0].get_xaxis_transform(),
            xytext=(0, CLEAR_PT + level * 1.4 * MOMENT_PT),
            textcoords="offset points",
            ha="left" if share < 0.3 else "right" if share > 0.7 else "center",
            va="bottom",
            fontsize=MOMENT_PT,
            fontweight="bold",
            color=theme.ink,
        )
        level += 1


def lane_rows(marks: Sequence[Mark], most: int = ROWS) -> list[tuple[str, list[Mark]]]:
    """Return the events by name, in order of their first step."""
    rows: dict[str, list[Mark]] = {}
    for mark in sorted((m for m in marks if m.role not in DASHES), key=lambda m: m.step):
        rows.setdefault(mark.label, []).append(mark)
    found = list(rows.items())
    if len(found) > most:
        rest = [mark for _, marks in found[most - 1 :] for mark in marks]
        found = [*found[: most - 1], (f"{len(found) - most + 1} other kinds", rest)]
    return found


def lane_height(rows: Sequence[object]) -> float:
    """Inches that a lane of so many rows takes."""
    return ROW_IN * len(rows) + 0.1 if rows else 0.0


def draw_lane(axes: Axes, rows: Sequence[tuple[str, list[Mark]]], theme: Theme) -> None:
    """Draw one row for each kind of event, a bar for each from its first to its last step.

    The x axis is final when this is called.
    """
    low, high = axes.get_xlim()
    least = LEAST * (high - low)
    labels = []
    width = 0.3 * page(axes).get_figwidth()
    for i, (label, marks) in enumerate(rows):
        spans = []
        for mark in marks:
            last = mark.step if mark.last is None else mark.last
            spans.append((mark.step - least / 2, max(last - mark.step, 0) + least))
        colour = theme.calm[i % len(theme.calm)]
        axes.broken_barh(spans, (i - 0.3, 0.6), facecolor=colour, edgecolor=theme.ink, linewidth=0.5, alpha=0.75)
        labels.append(fitted(f"{label} ({len(marks)})" if len(marks) > 1 else label, width, TICK_PT))
    axes.set_yticks(np.arange(len(rows)), labels)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    dress(axes, theme, grid="")
    axes.tick_params(axis="x", labelbottom=False, length=0)
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlim(low, high)


def stacked(figure: Figure, marks: Sequence[Mark]) -> tuple[Axes, Axes | None, list[tuple[str, list[Mark]]]]:
    """Lay out the panel of the data and, where there are events, a lane above it; both share the x axis."""
    low = figure.get_figheight() < LOW_IN
    rows = lane_rows(marks, FEW_ROWS if low else ROWS)
    if not rows:
        return figure.add_subplot(), None, rows
    lane = lane_height(rows)
    rest = 1.2 if low else figure.get_figheight() - lane - 1.4
    top, axes = figure.subplots(2, 1, sharex=True, height_ratios=[lane, rest])
    return axes, top, rows
