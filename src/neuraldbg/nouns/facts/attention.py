"""TODO attention."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Softmax over positions in a training pass: {"step": int, "places": [{"layer": str (the layer that it feeds), "heads": int, "keys": int, "entropy": float (mean over samples, heads and queries, relative to that of a uniform distribution over the keys a query may see), "low": float (share of heads whose mean is below 0.05), "logit": float | None (largest score of a query and a key that was read)}]}.
@dataclass(frozen=True, kw_only=True)
class AttentionPlace:
    """TODO."""

    layer: str
    heads: Count | None = None
    keys: Count | None = None
    entropy: float | None = None
    low: float | None = None
    logit: float | None = None


@dataclass(frozen=True, kw_only=True)
class AttentionFact(Known):
    """TODO."""

    KEY: ClassVar = "attention"

    step: int | None = None
    places: tuple[AttentionPlace, ...] = ()
