"""The DRY fact: backward passes without effect."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count, SourceLine
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class DryFact(Known):
    """The backward passes that reached no parameter of any watched model."""

    KEY: ClassVar = "dry"

    dry: Count
    """The number of such passes."""
    backwards: Count
    """The number of all backward passes that were examined."""
    leaf: Count
    """The number of such passes whose loss has no graph at all."""
    output_grad: bool | None
    """True if the output of the model's latest forward pass still had a graph; None without such a pass."""
    place: SourceLine | None
    """The line of the first of those backward calls; None if it is not known."""
    step: int
    """The optimizer step of the first such pass."""
