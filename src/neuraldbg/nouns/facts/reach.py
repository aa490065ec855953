"""The REACH fact: the optimizers whose tensors each summand of a loss reaches."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count, SourceLine
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class SummandReach:
    """One summand of the loss that one line differentiates."""

    name: str
    """Name of the variable that holds it, "" if none does."""
    place: SourceLine
    """The line that calls the backward pass."""
    stream: int = -1
    """The optimizer that stepped first after it, at the newest reading."""
    read: Count = 0
    """Backward passes at which it was read."""
    hits: Count = 0
    """Those at which it reached a tensor of that optimizer."""
    reached: tuple[Count, ...] = ()
    """The optimizers of which it reached a tensor."""
    own: tuple[Count, ...] = ()
    """Those of them that step first after a backward pass of their own, on another line."""


@frozen
class ReachFact(Known):
    """The summands of losses that have several, at most 16."""

    KEY: ClassVar = "reach"

    summands: tuple[SummandReach, ...] = ()
    """In the order in which they were found."""
