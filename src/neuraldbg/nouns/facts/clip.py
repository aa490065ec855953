"""The CLIP fact: gradient clipping, and its place in the loop."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class ClipFact(Known):
    """The clipping of one optimizer's gradients so far, by norm or by value."""

    KEY: ClassVar = "clip"

    scaled: Count
    """Calls on gradients that still carried the loss scale."""
    kind: str = ""
    """``norm`` or ``value``."""
    limit: float = 0.0
    """Limit of the latest call, 0 if unknown."""
    scale: float = 1.0
    """Loss scale at the latest call of ``scaled``, 1 if there was none."""
    worst: float = 0.0
    """Largest gradient of a step after a misplaced call, as a multiple of the limit; 0 if none was measured."""
    first: int | None = None
    """Step of the first misplaced call, or of the first of ``scaled``; None if there is none."""
    stream: Count = 0
    """Number of the optimizer."""
    calls: Count = 0
    """Calls in all."""
    right: Count = 0
    """Calls after the last backward pass and before the step."""
    after_step: Count = 0
    """Calls after the step."""
    before_backward: Count = 0
    """Calls before the backward pass that makes the gradients."""
    between: Count = 0
    """Calls after which a backward pass added more gradient."""
    empty: Count = 0
    """Calls that found no gradient."""
    exceeded: Count = 0
    """Misplaced calls after which the step was taken with more than the limit, of those that were measured."""
