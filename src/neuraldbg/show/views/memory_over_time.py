"""Memory over steps: what the process has resident, and what the device has allocated for tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.facts.growth import GrowthFact
from neuraldbg.show.format.leaks import risen_notes
from neuraldbg.show.format.unit_amounts import unit_of
from neuraldbg.show.forms import Lines, Scale
from neuraldbg.show.views.averaged import mean_note
from neuraldbg.show.views.columns import end_of
from neuraldbg.show.views.moments import marks_of
from neuraldbg.show.views.series import scalar_line
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Line

NAMES = (("resident", "resident memory"), ("device_memory", "tensors on the device"))
UNMEASURED = (
    "memory over time was not measured in these steps: record it with neuraldbg run --profile, or with "
    "NeuralDbg(model, profile=True)"
)


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Lines:
    """Return a curve for each kind of memory that was measured, and its growth in words."""
    lines = [scalar_line(run, name, None, words, choice) for name, words in NAMES]
    found = [line for line in lines if len(line.steps)]
    values = np.concatenate([np.zeros(1), *(line.values[np.isfinite(line.values)] for line in found)])
    size, unit = unit_of(float(values.max()), "B")
    return Lines(
        name="memory_over_time",
        title="Memory over time",
        lines=tuple(_in(line, size) for line in found),
        y=Scale("memory", unit),
        end=end_of(run, choice),
        marks=marks_of(run, diagnosis, choice),
        notes=tuple(note for note in (*growth_notes(run), mean_note(tuple(found))) if note),
        empty="" if found else UNMEASURED,
    )


def growth_notes(run: RunRecord) -> tuple[str, ...]:
    """Write by how much memory grew from step to step, if that was counted."""
    growth = run.known(GrowthFact)
    return () if growth is None else tuple(risen_notes(growth, span=True))


def _in(line: Line, size: float) -> Line:
    """Return a line in a larger unit."""
    low, high = (None if one is None else one / size for one in (line.low, line.high))
    return replace(line, values=line.values / size, low=low, high=high)


VIEW = Member("memory_over_time", "resident memory and that of the device, over steps", compute, takes=("step",))
