"""TODO loss_branches."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Two losses on shared weights: {"pair": str, "step": int, "layer": str (whose output or parameters both reach), "kind": "terms" (of one sum) | "backwards" (one after the other), "cosine": float, "norms": [float, float], "names": [str, str]}.
@dataclass(frozen=True, kw_only=True)
class LossBranchesFact(Known):
    """TODO."""

    KEY: ClassVar = "loss_branches"
    IDENTITY: ClassVar = "pair"

    pair: str
    step: int
    layer: str | None
    cosine: float
    norms: tuple[float, float]
    names: tuple[str, str]
    kind: str = ""
