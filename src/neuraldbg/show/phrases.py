"""Parts of a hypothesis as short phrases: its probability, its place, a piece of evidence with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.show.text import number, says

if TYPE_CHECKING:
    from neuraldbg.nouns import Evidence, Hypothesis


def percent(confidence: float) -> str:
    """Return a probability in per cent; what is not certain never reads as 100 % or 0 %."""
    shown = round(100 * confidence)
    if shown >= 100 and confidence < 1:
        return ">99%"
    return "<1%" if shown <= 0 < confidence else f"{shown}%"


def place(cause: Hypothesis) -> list[str]:
    """Return its layer and its first step, those that it has."""
    layer = [cause.layer] if cause.layer else []
    return layer + ([f"step {cause.step:,}"] if cause.step is not None else [])


def statement(evidence: Evidence) -> str:
    """Return the statement with its measured numbers, those that it does not give itself."""
    value, threshold = evidence.value, evidence.threshold
    told = []
    if value is not None and not says(evidence.statement, value):
        told.append(number(value))
    if threshold is not None and not says(evidence.statement, threshold):
        told.append(f"limit {number(threshold)}")
    return evidence.statement + (f" [{', '.join(told)}]" if told else "")
