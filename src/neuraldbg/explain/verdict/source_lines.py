"""Which lines of the user's code a hypothesis points at.

Where the birth of the first non-finite value was found, and the hypothesis is about it, it is the line of that
operation. All other lines come from the PLACES fact: where a model is called, a loss differentiated, an optimizer made
or stepped. A cause is at one of them or near it, and each says what happens there. Where a program has several of a
kind (a GAN has two), all are given.
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
"""The kind of line at which causes of a category are looked for, unless one says otherwise."""
INSTEAD = {"optimizer": "step", "scheduler": "step"}
"""What stands in for a kind that was not seen: it was made before the session began."""
WHAT = {
    "backward": "the backward pass is called",
    "evaluation": "the model is evaluated",
    "forward": "the model is called",
    "optimizer": "the optimizer is made",
    "scheduler": "the scheduler is made",
    "step": "the optimizer steps",
}
"""What happens on the lines of a kind."""
MOST = 2
"""With more lines than this none is pointed at."""


def places(case: Case, cause: Cause, hypothesis: Hypothesis) -> tuple[CodeLine, ...]:
    """Return the lines to look at first; none where they are unknown or too many."""
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
    """Return the line of the operation that gave the first non-finite value, if the hypothesis speaks of it."""
    born = birth(case, "forward", "backward")
    where = place(born.where) if born is not None else ""
    said = [hypothesis.sentence, *(one.statement for one in hypothesis.evidence if one.supports)]
    if born is None or born.where is None or not any(where in words for words in said):
        return None
    whose = "the backward of this operation" if born.phase == "backward" else "this operation"
    return _line(born.where, f"{whose} gave the first non-finite value")


def _line(at: kinds.SourceLine, what: str) -> CodeLine:
    return CodeLine(at.file, at.number, at.text, what)
