"""The tabs, in the order in which a person asks: what is wrong, what happened, where, and in which run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.dashboard.page.tabs import (
    activations,
    anomalies,
    compare,
    diagnosis,
    execution_trace,
    gradients,
    memory,
    runs,
)

if TYPE_CHECKING:
    from neuraldbg.dashboard.page.tab import Tab

TABS: tuple[Tab, ...] = (
    diagnosis.TAB,
    execution_trace.TAB,
    gradients.TAB,
    activations.TAB,
    memory.TAB,
    anomalies.TAB,
    compare.TAB,
    runs.TAB,
)
