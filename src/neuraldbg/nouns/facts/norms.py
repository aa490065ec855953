"""TODO norms."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Batch normalisation in training passes: {"step": int, "layers": [{"layer": str, "momentum": float | None (None averages over all batches), "tracking": bool, "frozen": bool (its part of the model has parameters, and none requires gradients), "still": bool (the weights of that part are bitwise as when first seen), "training": bool, "fresh": bool (running statistics were 0 and 1 when first seen), "batch": int, "elements": int (values that one channel's statistic is taken over), "mean_gap": float | None (median over channels of |batch mean - running mean| / running std, before the update), "var_gap": float | None (median of |ln(batch variance / running variance)|), "drift": float (median of |running mean - that when first seen| / running std), "moved": bool (running statistics changed since then)}]}.
@dataclass(frozen=True, kw_only=True)
class NormLayer:
    """TODO."""

    layer: str
    momentum: float | None = None
    mean_gap: float | None = None
    var_gap: float | None = None
    drift: float | None = None
    tracking: bool = False
    frozen: bool = False
    still: bool = False
    training: bool = False
    fresh: bool = False
    moved: bool = False
    batch: Count | None = None
    elements: Count | None = None


@dataclass(frozen=True, kw_only=True)
class NormsFact(Known):
    """TODO."""

    KEY: ClassVar = "norms"

    step: int | None = None
    layers: tuple[NormLayer, ...] = ()
