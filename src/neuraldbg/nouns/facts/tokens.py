"""The TOKENS fact: similarity of the positions of a sequence, block by block."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class TokenLayer:
    """The similarity of the positions that leave a block, or enter the first."""

    layer: str
    """The path of the block; empty for the input of the first block."""
    tokens: Count
    """The number of positions in a sequence."""
    cosine: float
    """The mean cosine between two positions of the same sample."""


@frozen
class TokensFact(Known):
    """The similarity of the positions of one sequence through the depth of a model."""

    KEY: ClassVar = "tokens"

    layers: tuple[TokenLayer, ...]
    """The blocks, in the order of their calls."""
    step: int = 0
    """The optimizer step in which they were read."""
