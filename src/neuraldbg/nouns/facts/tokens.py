"""TODO tokens."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: How alike the positions of one sequence are: {"step": int, "layers": [{"layer": str, "tokens": int, "cosine": float (mean cosine between positions of the same sample)}]}, layers in order of their call.
@dataclass(frozen=True, kw_only=True)
class TokenLayer:
    """TODO."""

    layer: str
    tokens: Count
    cosine: float


@dataclass(frozen=True, kw_only=True)
class TokensFact(Known):
    """TODO."""

    KEY: ClassVar = "tokens"

    layers: tuple[TokenLayer, ...]
    step: int | None = None
