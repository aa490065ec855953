"""The loss over steps, with the events of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.show.views.moments import marks_of
from neuraldbg.show.views.view import Choice, Line, Lines, Mark, Member, Scale

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.views.view import Floats

DECADES = 2.0
"""A loss that spans more powers of ten than this is shown on a log axis."""


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Lines:
    """Return one line for each optimizer that stepped: the two losses of a GAN are two."""
    lines = []
    for stream in run.streams:
        series = run.scalar("loss", stream)
        if choice.first is not None or choice.last is not None:
            series = series.between(choice.first or 0, run.steps if choice.last is None else choice.last)
        if len(series):
            bad = ~np.isfinite(series.values)
            name = "loss" if len(run.streams) == 1 else f"loss of optimizer {stream}"
            lines.append(Line(name, series.steps, np.where(bad, np.nan, series.values), nonfinite=series.steps[bad]))
    thinned = bool((run.history.width > 1).any())
    events = tuple(
        Mark(e.first_step, e.kind.replace("_", " "), "event", e.last_step, e.layer) for e in diagnosis.events
    )
    return Lines(
        name="loss",
        title="Loss",
        lines=tuple(lines),
        y=Scale("loss", log=_wide([line.values for line in lines])),
        marks=(*marks_of(run, diagnosis, choice), *events),
        notes=("older steps are means of several",) if thinned and lines else (),
        empty="" if lines else "no loss was seen: NeuralDBG finds it where backward() is called",
    )


def _wide(values: list[Floats]) -> bool:
    found = np.concatenate([v[np.isfinite(v)] for v in values]) if values else np.zeros(0)
    return bool(len(found) and found.min() > 0 and np.log10(found.max() / found.min()) > DECADES)


VIEW = Member("loss", "the loss with the events of the run", compute)
