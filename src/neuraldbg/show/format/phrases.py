"""Parts of a hypothesis as short phrases: its probability, its place, a piece of evidence with its numbers."""

from __future__ import annotations

import re
from numbers import Integral, Real
from typing import TYPE_CHECKING, TypeGuard

from neuraldbg.nouns.layout import called
from neuraldbg.show.format.safe_text import GUILTY, listed, number, says

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.nouns import Evidence, Hypothesis

REPEATED = 0.7
"""Share of a statement's words that were said already, from which on it repeats."""

ROLES = {
    "cause": "cause",
    "event": "event",
    "symptom": "symptom",
    "guilty": GUILTY,
    "bad": "layer with events",
    "untrained": "no gradient",
    "healthy": "healthy",
    "unseen": "not read",
}
"""Roles of the nodes of a graph, as legends name them."""
LIKELY = 0.2
"""Probability below which a cause has one line, not a block: a long block would hide the likely one."""


def percent(confidence: float) -> str:
    """Write a probability in per cent, never as 100 % or 0 % if it is not certain."""
    shown = round(100 * confidence)
    if shown >= 100 and confidence < 1:
        return ">99%"
    return "<1%" if shown <= 0 < confidence else f"{shown}%"


def place(cause: Hypothesis) -> list[str]:
    """Return the rank, the layer and the first step of a hypothesis in words, if known."""
    layer = [cause.place if cause.layer_alias else called(cause.layer)] if cause.layer else []
    if cause.ranks:
        layer.insert(0, f"rank{'s' if len(cause.ranks) > 1 else ''} {listed([str(rank) for rank in cause.ranks], 4)}")
    if cause.step is not None and cause.since is not None:
        return [*layer, f"between steps {cause.since:,} and {cause.step:,}"]
    return layer + ([f"step {cause.step:,}"] if cause.step is not None else [])


def statement(evidence: Evidence) -> str:
    """Write the statement of a piece of evidence with its measured numbers, except those that it already has."""
    said, value, limit = evidence.statement, evidence.value, evidence.threshold
    told = [f"measured {number(value)}"] if _numeric(value) and not says(said, value) else []
    counted = _counted(value)
    # A threshold of zero for a count adds nothing.
    if _numeric(limit) and not (counted and limit == 0) and not says(said, limit, rounded=False):
        told.append(f"threshold {number(limit)}")
    # An integer counts what the statement lists, or is the step that it is about; a word is a name, for programs.
    measured = value is None or (_numeric(value) and not counted) or says(said, value)
    return evidence.statement + (f" [{', '.join(told)}]" if told and measured else "")


def _numeric(value: object) -> TypeGuard[float]:
    """Return True if a value is a number; those of numpy are neither int nor float."""
    return isinstance(value, Real)


def _counted(value: object) -> bool:
    return isinstance(value, Integral)


def telling(cause: Hypothesis, said: str, most: int) -> list[Evidence]:
    """Return the strongest evidence that adds something to the sentence of the cause and to what was already ``said``.

    If there is evidence against, the strongest takes the last place.
    """
    told = _words(f"{said} {cause.sentence}")
    found: dict[bool, list[Evidence]] = {True: [], False: []}
    for one in cause.evidence:
        words = _words(one.statement)
        if words and len(words & told) < REPEATED * len(words):
            found[one.supports].append(one)
            told |= words
    against = found[False][:1]
    return [*found[True][: most - len(against)], *against]


def _words(text: str) -> frozenset[str]:
    """Return the numbers and the longer words of a text in lower case, without the explanations of averages."""
    plain = re.sub(r"\((?:lowest )?(?:median|mean) [^()]*\)", " ", text.lower())
    return frozenset(word.strip(".,:;'()[]") for word in plain.split() if len(word) > 3 or any(map(str.isdigit, word)))


def credible(hypotheses: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
    """Return the first cause, and those after it that are likely enough for a block."""
    return tuple(h for i, h in enumerate(hypotheses) if i == 0 or h.confidence >= LIKELY)
