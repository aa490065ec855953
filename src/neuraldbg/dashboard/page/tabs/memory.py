"""The tab of memory: the bytes of the tensors that were read, by layer. (The allocator is not measured yet.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.dashboard.page.figures import drawn
from neuraldbg.dashboard.page.tab import Drawing, Pane, Tab

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.context import Scene


def layers(scene: Scene) -> Drawing:
    """Draw the bytes of each layer's tensors."""
    return drawn(scene, "memory", step=scene.step)


def profile(scene: Scene) -> Drawing:
    """Return the sentence that this version does not measure the allocator."""
    del scene
    return Drawing(
        "Memory over time",
        empty="This run holds sizes of tensors, not what the allocator took: peaks over time, leaks and fragmentation "
        "come with profiling, which this version does not record yet.",
    )


TAB = Tab(
    "memory", "Memory", (Pane("layers", "figure", layers, wide=True), Pane("profile", "figure", profile, wide=True))
)
