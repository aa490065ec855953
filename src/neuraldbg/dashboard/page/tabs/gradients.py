"""The tab of gradients: every layer over time, all layers at one step, updates against weights, one layer's values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.dashboard.page.components import choices
from neuraldbg.dashboard.page.figures import drawn
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene

KINDS = (("param_grad", "of parameters"), ("output_grad", "at outputs"))
STATS = tuple((s, s) for s in ("norm", "rms", "mean", "std", "min", "max", "zeros", "nonfinite", "under", "over"))


def _kind(scene: Scene) -> str:
    return scene.state.kind if scene.state.kind in dict(KINDS) else "param_grad"


def heatmap(scene: Scene) -> Drawing:
    """Draw a statistic of all layers' gradients over time."""
    kind, stat = _kind(scene), scene.state.stat if scene.state.stat in dict(STATS) else "norm"
    controls = [choices(scene, "gradient", "kind", KINDS, kind), choices(scene, "statistic", "stat", STATS, stat)]
    return drawn(scene, "heatmap", controls, kind=kind, stat=stat)


def flow(scene: Scene) -> Drawing:
    """Draw the gradients over depth at the selected step."""
    return drawn(scene, "flow", step=scene.step)


def updates(scene: Scene) -> Drawing:
    """Draw the size of updates relative to the weights."""
    return drawn(scene, "updates")


def distribution(scene: Scene) -> Drawing:
    """Draw the distribution of one layer's gradient."""
    return drawn(scene, "distribution", kind=_kind(scene), layer=scene.layer)


TAB = Tab(
    "gradients",
    "Gradients",
    (
        Pane("heatmap", "figure", heatmap, wide=True),
        Pane("flow", "figure", flow),
        Pane("updates", "figure", updates),
        Pane("distribution", "figure", distribution, wide=True),
    ),
)
