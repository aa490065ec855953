"""The parts of a step by time: data loader, forward, backward, optimizer, the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.step_spans import parts_of
from neuraldbg.show.format.unit_amounts import amount, per_cent, unit_of
from neuraldbg.show.forms import Bar, Bars, Scale
from neuraldbg.show.views.timed import UNTIMED, sampled_note, timing_of, work_note
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.nouns.facts.timing import TimingFact

TITLE = "Time of the parts of a step"
LABEL = "time in a step"


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Bars:
    """Return a bar for each part of a step that was measured, in the order in which they pass."""
    del diagnosis, choice
    timing = timing_of(run)
    parts = parts_of(timing) if timing is not None and not timing.doubtful else ()
    if timing is None or not parts:
        missing = UNTIMED if timing is None else timing.caution() or "the parts of a step were not timed"
        return Bars(name="phases", title=TITLE, layers=(), bars=(), scale=Scale(LABEL, "ms"), empty=missing)
    seconds = np.array([part for _, part in parts], np.float64)
    size, unit = unit_of(float(seconds.max(initial=0.0)), "s")
    return Bars(
        name="phases",
        title=TITLE,
        layers=tuple(name for name, _ in parts),
        bars=(Bar("time", seconds / size),),
        scale=Scale(LABEL, unit),
        stacked=True,
        words=tuple(f"{amount(part, 's')}, {per_cent(part, timing.step_s)}" for _, part in parts),
        of_layers=False,
        notes=tuple(
            note for note in (timing.caution(), _usual(timing), work_note(timing), sampled_note(timing)) if note
        ),
    )


def _usual(timing: TimingFact) -> str:
    """Write how long a step takes, sampled or not."""
    usual = f", one that was not sampled {amount(timing.usual_s, 's')}" if timing.usual_s else ""
    return f"A step takes {amount(timing.step_s, 's')}{usual}"


VIEW = Member("phases", "the parts of a step by time: data, forward, backward, optimizer", compute)
