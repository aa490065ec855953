"""The loss over steps, with the events of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg.show.forms import Lines, Mark
from neuraldbg.show.views.series import scalars_of
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Lines:
    """Return the loss of each optimizer that stepped."""
    view = scalars_of(run, diagnosis, choice, ("loss",), name="loss", title="Loss")
    events = tuple(
        Mark(event.first_step, event.kind.replace("_", " "), "event", event.last_step, event.layer)
        for event in diagnosis.events
    )
    empty = "no loss was recorded: it is read where backward() or autograd.grad() is called" if view.empty else ""
    return replace(view, marks=(*view.marks, *events), empty=empty)


VIEW = Member("loss", "the loss with the events of the run", compute, takes=("step",))
