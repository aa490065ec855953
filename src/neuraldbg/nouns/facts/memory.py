"""The MEMORY fact: times that an optimizer lost its state within the run."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class MemoryFact(Known):
    """Times that the optimizer of the same weights was made again, or emptied of its state."""

    KEY: ClassVar = "memory"

    stream: Count = 0
    """Number of the first optimizer of these weights."""
    type: str = ""
    """Name of its class."""
    stateful: bool = False
    """True if it keeps a state between steps."""
    steps: Count = 0
    """Steps of all optimizers of these weights."""
    remade: Count = 0
    """New optimizers for the same weights, which went on from their last values."""
    emptied: Count = 0
    """Times that the state of an optimizer was cleared."""
    every: Count = 0
    """Steps between two of these losses, their median."""
    first: int | None = None
    """Step of the first loss, None if unknown."""
    same_lr: bool = True
    """True if each new optimizer came with the learning rate of the one before."""
