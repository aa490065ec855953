"""The duration of each step, and NeuralDBG's share of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.show.views.series import scalars_of
from neuraldbg.show.views.view import Choice, Member

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.show.forms import Lines


def compute(run: RunRecord, diagnosis: Diagnosis, choice: Choice) -> Lines:
    """Return the duration of the steps, and the time of NeuralDBG in it."""
    return scalars_of(run, diagnosis, choice, ("duration", "overhead"), name="trace", title="Time of each step")


VIEW = Member("trace", "the time of each step", compute, takes=("step",))
