"""The ATTENTION fact: softmax over positions in a training pass."""

import math
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class AttentionPlace:
    """A softmax over positions, read for a few samples, heads and queries."""

    layer: str
    """The path of the layer that the softmax feeds."""
    heads: Count = 0
    """The number of heads that were read."""
    keys: Count = 0
    """The number of keys."""
    entropy: float = math.nan
    """The mean entropy over samples, heads and queries, relative to that of a uniform distribution over the keys that a
    query may see; between 0 and 1."""
    low: float = math.nan
    """The share of heads whose mean relative entropy is below 0.05."""
    logit: float | None = None
    """The largest score of a query and a key that was read, by size; None if only the weights could be read."""


@frozen
class AttentionFact(Known):
    """The places of a training pass at which a softmax weighs positions."""

    KEY: ClassVar = "attention"

    step: int = 0
    """The optimizer step in which they were read."""
    places: tuple[AttentionPlace, ...] = ()
    """The places, each read once."""
