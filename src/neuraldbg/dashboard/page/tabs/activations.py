"""The tab of activations: any statistic over time, dead and saturated units, and the distribution in one layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.dashboard.page.components import choices
from neuraldbg.dashboard.page.figures import drawn
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab
from neuraldbg.show.forms import Bars

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene

NAMES = ("rms", "norm", "mean", "std", "min", "max", "zeros", "dead", "saturated", "nonfinite", "under", "over")
STATS = tuple((s, s) for s in NAMES)


def heatmap(scene: Scene) -> Drawing:
    """Draw a statistic of all layers' outputs over time."""
    stat = scene.state.stat if scene.state.stat in NAMES else "rms"
    return drawn(scene, "heatmap", choices(scene, "statistic", "stat", STATS, stat), kind="activation", stat=stat)


def units(scene: Scene) -> Drawing:
    """Draw the dead and saturated units of every layer at the step of the address, else late in the run: at the step of
    the diagnosis, which may be the first one, none may be known to be dead.
    """
    view = scene.view("units", step=scene.state.step)
    if isinstance(view, Bars) and not view.empty and not any((bar.values > 0).any() for bar in view.bars):
        return Drawing(view.title, empty="No unit was dead and no value saturated.", notes=view.notes)
    return drawn(scene, "units", step=scene.state.step)


def distribution(scene: Scene) -> Drawing:
    """Draw the distribution of one layer's outputs."""
    return drawn(scene, "distribution", kind="activation", layer=scene.layer)


TAB = Tab(
    "activations",
    "Activations",
    (
        Pane("heatmap", "figure", heatmap, wide=True),
        Pane("units", "figure", units),
        Pane("distribution", "figure", distribution),
    ),
)
