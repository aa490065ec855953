"""The panels of the crash picture: the loss and every layer's curve, with non-finite values marked at the edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.axes.ticks import wide
from neuraldbg.show.forms import Mark
from neuraldbg.show.static.axis import dress, legend
from neuraldbg.show.static.curves import draw_curves
from neuraldbg.show.static.marks import draw_moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from neuraldbg.show.forms import Line
    from neuraldbg.show.static.theme import Theme
    from neuraldbg.show.views.crash import Picture


def draw_loss(axes: Axes, shown: Picture, theme: Theme) -> None:
    """Draw the loss of each optimizer, with NaN or infinite steps marked at the top edge."""
    losses = shown.losses
    if losses:
        parts = [part for one in losses for part in (one.values, one.low, one.high) if part is not None]
        draw_curves(axes, losses, (), theme, log=wide(np.concatenate(parts), signed=True))
    axes.set_ylabel("loss")
    dress(axes, theme)
    if not losses:
        _say(axes, "no loss was recorded", theme)
    elif len(losses) > 1 or any(one.nonfinite is not None and len(one.nonfinite) for one in losses):
        legend(axes, theme)


def draw_layers(axes: Axes, shown: Picture, lines: Sequence[Line], label: str, theme: Theme) -> None:
    """Draw one line a layer on a log axis; the guilty one thick and on top."""
    axes.set_ylabel(label)
    draw_curves(axes, lines, shown.guilty, theme, log=True, charge=shown.charge)
    dress(axes, theme)
    if lines:
        legend(axes, theme)
    else:
        _say(axes, "not measured in this run" if shown.layer is None else "not measured for this layer", theme)


def mark_failure(panels: Sequence[Axes], shown: Picture, theme: Theme) -> None:
    """Draw the moment of failure through all panels, say in the first one what it is, and tint what follows."""
    if shown.failure is None:
        return
    for axes in panels:
        axes.axvspan(shown.failure, shown.last + shown.span, color=theme.bad, alpha=0.05, linewidth=0, zorder=0)
    draw_moments(panels, [Mark(shown.failure, shown.failure_label, "failure")], theme)


def _say(axes: Axes, words: str, theme: Theme) -> None:
    axes.set_yticks([])
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=theme.muted)
