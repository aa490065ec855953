"""The lines of the user's code that belong to a hypothesis.

Where the operation that gave the first non-finite value was found, and the hypothesis is about it, it is the line of
that operation; where the cause itself found a line, it is that one. All others come from the PLACES fact: the lines
that compute the loss, create a layer, an optimizer or a scheduler, or call a model. Each says what happens there. Where
a program has several of a kind (a GAN has two), both are given. A line that is not known is left out: the line of
``loss.backward()`` is shown for no fault but a missing optimizer step.
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
    "loop": "",
    "loss": "loss",
    "data": "forward",
    "optimisation": "optimizer",
    "architecture": "layer",
    "precision": "",
}
"""Kind of line for the causes of each category; a cause may name another (``Cause.place``)."""
INSTEAD = {"optimizer": "step", "scheduler": "step", "softmax": "loss", "sigmoid": "loss"}
"""Replacement for a kind that was not found: optimizer or scheduler were created before the session began."""
WHAT = {
    "backward": "the backward pass is called",
    "evaluation": "the model is evaluated",
    "forward": "the model is called",
    "layer": "the layer is created",
    "loss": "the loss is computed",
    "optimizer": "the optimizer is created",
    "scheduler": "the scheduler is created",
    "sigmoid": "the sigmoid is applied",
    "softmax": "the softmax is applied",
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
    if hypothesis.places:  # the cause knows the line itself
        return hypothesis.places
    kind = USUAL.get(cause.category, "") if cause.place is None else cause.place
    layer = seen.get(f"layer {hypothesis.layer}", ())
    if kind in ("softmax", "sigmoid") and any(kind in line.text.lower() for line in layer):  # it is a layer of its own
        kind = "layer"
    lines = layer if kind == "layer" else seen.get(kind, ())
    if not lines:
        kind = INSTEAD.get(kind, "")
        lines = seen.get(kind, ())
    if kind not in WHAT:  # no line is asked for; a file from anybody may have lines of a kind without a name
        return ()
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
