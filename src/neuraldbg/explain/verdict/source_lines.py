"""The lines of the user's code that belong to a hypothesis.

Where the operation that gave the first non-finite value was found, and the hypothesis is about it, it is the line of
that operation. All other lines come from the PLACES fact: the calls that run a model or a backward pass, make an
optimizer or step it. Autograd keeps no line of the code that computed a loss, so a fault in the loss has the line that
calls the backward pass. A cause is at one of these lines or near it, and each line says what happens there. Where a
program has several of a kind (a GAN has two), all are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.evidence.inputs import birth, place
from neuraldbg.nouns import CodeLine
from neuraldbg.nouns.facts.places import PlacesFact

if TYPE_CHECKING:
    from neuraldbg.explain.cause import Cause
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns import Hypothesis
    from neuraldbg.nouns.facts import kinds

USUAL = {
    "loop": "backward",
    "loss": "backward",
    "data": "forward",
    "optimisation": "optimizer",
    "architecture": "forward",
    "precision": "backward",
}
"""Kind of line for the causes of each category; a cause may name another (``Cause.place``)."""
INSTEAD = {"optimizer": "step", "scheduler": "step"}
"""Replacement for a kind that was not seen: optimizer or scheduler were made before the session began."""
WHAT = {
    "backward": "the backward pass is called",
    "evaluation": "the model is evaluated",
    "forward": "the model is called",
    "optimizer": "the optimizer is made",
    "scheduler": "the scheduler is made",
    "step": "the optimizer steps",
}
"""A description of each kind of line."""
MOST = 2
"""Largest number of lines of a kind; of more none is shown."""


def places(case: Case, cause: Cause, hypothesis: Hypothesis) -> tuple[CodeLine, ...]:
    """Return the lines to show for a hypothesis; none if they are unknown or too many."""
    born = _born(case, hypothesis)
    if born is not None:
        return (born,)
    known = case.run.known(PlacesFact)
    seen = known.lines if known is not None else {}
    kind = USUAL.get(cause.category, "forward") if cause.place is None else cause.place
    if not seen.get(kind):
        kind = INSTEAD.get(kind, "")
    lines = seen.get(kind, ())
    return tuple(_line(at, WHAT[kind]) for at in lines) if len(lines) <= MOST else ()


def _born(case: Case, hypothesis: Hypothesis) -> CodeLine | None:
    """Return the line of the operation that gave the first non-finite value; None if the hypothesis lacks it."""
    born = birth(case, "forward", "backward")
    where = place(born.where) if born is not None else ""
    said = [hypothesis.sentence, *(one.statement for one in hypothesis.evidence if one.supports)]
    if born is None or born.where is None or not any(where in words for words in said):
        return None
    whose = "the backward of this operation" if born.phase == "backward" else "this operation"
    return _line(born.where, f"{whose} gave the first non-finite value")


def _line(at: kinds.SourceLine, what: str) -> CodeLine:
    return CodeLine(at.file, at.number, at.text, what)
