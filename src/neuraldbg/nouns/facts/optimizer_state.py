"""TODO optimizer_state."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: The second moments of an adaptive optimizer, read from samples of its state after a step: {"stream": int, "key": str (name of the state), "dtype": str (of the state), "eps": float, "eps_kept": float (eps as that dtype holds it: 0 where it underflows), "params": int (how many were sampled), "below_eps": float (median over them of the share of elements with 0 < sqrt(v) <= eps among those that are not 0), "typical": float (median sqrt(v) of those)}.
@dataclass(frozen=True, kw_only=True)
class OptimizerStateFact(Known):
    """TODO."""

    KEY: ClassVar = "optimizer_state"
    IDENTITY: ClassVar = "stream"

    eps: float
    eps_kept: float
    dtype: str
    stream: Count | None = None
    key: str = ""
    params: Count | None = None
    below_eps: float | None = None
    typical: float | None = None
