"""How long each step took, and how much of that was watching it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.show.views.series import scalars_of
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Lines


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Lines:
    """Return the duration of the steps, and what NeuralDBG took of it."""
    return scalars_of(run, diagnosis, choice, ("duration", "overhead"), name="trace", title="Time of each step")


VIEW = Member("trace", "the time of each step", compute, takes=("step",))
