"""The views: a RunRecord and a Diagnosis enter, a View leaves. One file a view, registered in VIEWS; ``view.py`` has
the contract.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg.errors import ConfigError
from neuraldbg.show.views import (
    chain,
    dataflow,
    distribution,
    flow,
    heatmap,
    loss,
    memory,
    memory_over_time,
    memory_peak,
    phases,
    profile,
    series,
    stability,
    timeline,
    trace,
    units,
    updates,
    weight_growth,
)
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import View

VIEWS: tuple[Member, ...] = (
    chain.VIEW,
    dataflow.VIEW,
    distribution.VIEW,
    flow.VIEW,
    heatmap.VIEW,
    loss.VIEW,
    memory.VIEW,
    memory_over_time.VIEW,
    memory_peak.VIEW,
    phases.VIEW,
    profile.VIEW,
    series.VIEW,
    stability.VIEW,
    timeline.VIEW,
    trace.VIEW,
    units.VIEW,
    updates.VIEW,
    weight_growth.VIEW,
)


def view(name: str, run: RunRecord, diagnosis: Diagnosis, choice: Choice | None = None) -> View:
    """Compute a view by its name. An unknown name raises ConfigError; ``view.py`` describes the choices."""
    for member in VIEWS:
        if member.name == name:
            found = member.compute(run, diagnosis, choice or Choice())
            return replace(found, notes=(*found.notes, run.info.note)) if run.info.note else found
    raise ConfigError(f"there is no view {name!r}: choose one of {', '.join(member.name for member in VIEWS)}")
