"""The tabs of the page, one file each. To register one, add it to ``TABS``.

- ``diagnosis.py``: verdict, causes, causal chain
- ``execution_trace.py``: one step as a timeline, time by layer and per step, scalars, layers, data flow
- ``gradients.py``, ``activations.py``: statistics of gradients and outputs
- ``memory.py``: memory over time, by layer and at its peak, what grows
- ``anomalies.py``: events, non-finite values, dead units, size of the weights, stability
- ``compare.py``: two runs
- ``runs.py``: all runs of the folder
"""

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
