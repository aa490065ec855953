"""TODO accumulation."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Several backward passes for one step: {"stream": int, "backwards": int, "forwards": int, "wiped": int (of them, those whose gradients were cleared and not used), "divisor": float (by what the losses were divided at their root, 1.0 if by nothing), "kinds": [str] (root operation of each different loss), "by_hand": bool (the gradients were replaced or the weights moved between the passes)}.
@dataclass(frozen=True, kw_only=True)
class AccumulationFact(Known):
    """TODO."""

    KEY: ClassVar = "accumulation"
    IDENTITY: ClassVar = "stream"

    stream: Count | None = None
    backwards: Count | None = None
    forwards: Count | None = None
    wiped: Count | None = None
    divisor: float | None = None
    kinds: tuple[str, ...] = ()
    by_hand: bool = False
