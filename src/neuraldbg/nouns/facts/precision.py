"""TODO precision."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: {"autocast": str | None (dtype), "param_dtypes": [str], "scaler": bool}.
@dataclass(frozen=True, kw_only=True)
class PrecisionFact(Known):
    """TODO."""

    KEY: ClassVar = "precision"

    autocast: str | None = None
    param_dtypes: tuple[str, ...] = ()
    scaler: bool = False
