"""The ACCUMULATION fact: several backward passes for one step."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class AccumulationFact(Known):
    """The backward passes of one step that had more than one of them."""

    KEY: ClassVar = "accumulation"

    stream: Count = 0
    """Number of the optimizer that stepped."""
    backwards: Count = 0
    """Backward passes since the step before."""
    forwards: Count = 0
    """Forward passes since the step before."""
    wiped: Count = 0
    """Backward passes whose gradients were cleared before anything used them."""
    divisor: float = 1.0
    """Constant by which the losses were divided at their root, the smallest of them; 1 if by nothing."""
    kinds: tuple[str, ...] = ()
    """Root operations of the losses, each once and sorted."""
    by_hand: bool = False
    """True if the gradients were replaced or the weights moved between the passes."""
