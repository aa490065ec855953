"""Curves of many layers in one panel: the guilty one strong, up to a dozen named, of more the rest as a grey crowd.

Values that are not finite stand at the top edge, and where a log axis has no place for zero, zeros at the bottom edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.show.format.short_names import LONGEST, short_names
from neuraldbg.show.static.axis import ROOMY_IN, page, scaled
from neuraldbg.show.static.labels import literal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from matplotlib.axes import Axes

    from neuraldbg.show.forms import Bools, Floats, Ints, Line
    from neuraldbg.show.static.theme import Theme

STYLES = ("-", "--", "-.", ":")
NAMED, FEW_NAMED = 12, 6
"""With more lines than this only the guilty, the first and the last are named; the rest is a grey crowd. A picture with
its legend below has room for few."""


@dataclass(frozen=True)
class Look:
    """The colour, width and style of one curve in a panel."""

    colour: str
    width: float
    style: str
    order: int
    named: bool


def draw_curves(
    axes: Axes, lines: Sequence[Line], guilty: Collection[str], theme: Theme, *, log: bool, charge: str = ""
) -> None:
    """Draw the lines and set the scale of the y axis. ``charge`` says behind the name why a layer is strong."""
    known = np.concatenate([np.zeros(0), *(part for line in lines for part in _drawn(line))])
    no_zero = scaled(axes, "y", known, log=log)
    finite = known[np.isfinite(known)]
    if log and len(finite) and not finite.any():
        axes.set_yscale("log")
        axes.set_yticks([])  # all that there is stands at the bottom edge: no number is on this axis
        axes.set_yticks([], minor=True)
        no_zero = True
    # Paths of layers are cut; the words of other lines, such as those of a loss with several terms, are wrapped.
    paths = short_names([line.name for line in lines if line.layer is not None or " " not in line.name])
    names = {name: literal(short) for name, short in paths.items()}
    most = NAMED if page(axes).get_figwidth() >= ROOMY_IN else FEW_NAMED
    looks = _looks(lines, guilty, theme, most)
    for line, look in zip(lines, looks, strict=True):
        label = names.get(line.name) or "\n".join(wrap(literal(line.name), LONGEST))
        # A label that starts with an underscore would be left out of the legend.
        label = f" {label}" if label.startswith("_") else label
        label = f"{label} ({charge})" if charge and line.layer in guilty else label
        _draw(axes, line, look, label if look.named else "_", no_zero=no_zero)
    others = sum(not look.named for look in looks)
    if others:
        axes.plot([], [], color=theme.crowd, linewidth=0.8, label=f"{others} other layers")
    _mark_nonfinite(axes, lines, guilty, theme)
    if no_zero:
        _mark_zeros(axes, lines, theme)


def _drawn(line: Line) -> list[Floats]:
    """Return the values of a line that a place on the axis is needed for: its points, and the ends of its band."""
    return [line.values] if line.low is None or line.high is None else [line.values, line.low, line.high]


def _looks(lines: Sequence[Line], guilty: Collection[str], theme: Theme, most: int) -> list[Look]:
    crowd = len(lines) > most
    strong = [line.layer in guilty for line in lines]
    if all(strong) and len(lines) > 1:  # all are of one layer, then, and it is which that matters
        strong = [False] * len(lines)
    looks: list[Look] = []
    calm = 0
    for i in range(len(lines)):
        if strong[i]:
            looks.append(Look(theme.strong, 2.8, STYLES[sum(strong[:i]) % len(STYLES)], 5, named=True))
        elif not crowd or i in (0, len(lines) - 1):
            style = STYLES[(calm // len(theme.calm) + calm) % len(STYLES)]
            looks.append(Look(theme.calm[calm % len(theme.calm)], 1.3, style, 3, named=True))
            calm += 1
        else:
            looks.append(Look(theme.crowd, 0.8, "-", 2, named=False))
    return looks


def _draw(axes: Axes, line: Line, look: Look, label: str, *, no_zero: bool) -> None:
    there = np.isfinite(line.values) & ((line.values > 0) | (not no_zero))
    values = np.where(there, line.values, np.nan)
    if look.named and line.low is not None and line.high is not None:
        low = np.where(line.low > 0, line.low, values) if no_zero else line.low
        axes.fill_between(line.steps, low, line.high, where=there, color=look.colour, alpha=0.15, linewidth=0)
    shape: dict[str, Any] = {"color": look.colour, "zorder": look.order}
    axes.plot(line.steps, values, label=label, linewidth=look.width, linestyle=look.style, **shape)
    framed = np.pad(there, 1)
    alone = there & ~framed[:-2] & ~framed[2:]
    if alone.any():  # a point between gaps would be invisible as a line
        size = 4 if look.named else 2
        if look.named and line.low is not None and line.high is not None:  # a band of no width neither
            low = np.where((line.low > 0) | (not no_zero), line.low, values)
            axes.vlines(line.steps[alone], low[alone], line.high[alone], color=look.colour, alpha=0.4, linewidth=2)
        axes.plot(line.steps[alone], values[alone], "o", markersize=size, label="_", **shape)


def _mark_nonfinite(axes: Axes, lines: Sequence[Line], guilty: Collection[str], theme: Theme) -> None:
    """Mark where lines stopped being finite, a crowd at once with one mark; a lone line also for how long."""
    bad = {i: _stretches(line) for i, line in enumerate(lines)}
    strong = [i for i, line in enumerate(lines) if bad[i] and (line.layer in guilty or len(lines) == 1)]
    others = [i for i in bad if bad[i] and i not in strong]
    for group, colour, who in ((others, theme.ink, "others " if strong else ""), (strong, theme.bad, "")):
        if not group:
            continue
        starts = sorted({first for i in group for first, _ in bad[i]})
        for first, last in bad[group[0]] if len(lines) == 1 else ():
            look: dict[str, Any] = {"color": colour, "linewidth": 5, "solid_capstyle": "butt"}
            axes.plot([first, last], [1, 1], zorder=5, transform=axes.get_xaxis_transform(), clip_on=False, **look)
        for_good = all(bad[i][-1][1] == lines[i].steps[-1] and len(bad[i]) == 1 for i in group)
        when = f"from step {starts[0]:,} on" if for_good else f"first at step {starts[0]:,}"
        word = "NaN or Inf" if len(lines) == 1 else f"{who}not finite"
        _mark_edge(axes, np.array(starts), 1.0, colour, f"{word}\n{when}")


def _stretches(line: Line) -> list[tuple[int, int]]:
    """First and last step of each stretch of values that are not finite."""
    if line.nonfinite is None or not len(line.nonfinite):
        return []
    at = np.isin(line.steps, line.nonfinite)
    return [(int(line.steps[first]), int(line.steps[last])) for first, last in _runs(at)]


def _runs(there: Bools) -> list[tuple[int, int]]:
    framed = np.pad(there, 1)
    first = np.flatnonzero(framed[1:-1] & ~framed[:-2])
    last = np.flatnonzero(framed[1:-1] & ~framed[2:])
    return list(zip(first.tolist(), last.tolist(), strict=True))


def _mark_zeros(axes: Axes, lines: Sequence[Line], theme: Theme) -> None:
    """Mark at the bottom edge from where lines are exactly zero to their end, and where they were so for a while."""
    starts, passing = set(), set()
    for line in lines:
        other = np.flatnonzero(line.values != 0)
        start = int(other[-1]) + 1 if len(other) else 0
        if start < len(line.values):
            starts.add(int(line.steps[start]))
        passing |= set(line.steps[:start][line.values[:start] == 0].tolist())
    if starts:
        found = np.array(sorted(starts))
        _mark_edge(axes, found, 0.0, theme.ink, f"exactly 0\nfrom step {found[0]:,} on")
    if passing:
        found = np.array(sorted(passing))
        _mark_edge(axes, found, 0.0, theme.muted, "exactly 0\nfor a while", "2")


def _mark_edge(axes: Axes, steps: Ints, height: float, colour: str, label: str, marker: str = "") -> None:
    axes.plot(
        steps,
        np.full(len(steps), height),
        linestyle="none",
        marker=marker or ("v" if height else "^"),
        markersize=8,
        color=colour,
        clip_on=False,
        zorder=6,
        transform=axes.get_xaxis_transform(),
        label=label,
    )
