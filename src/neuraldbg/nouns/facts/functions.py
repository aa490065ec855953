"""TODO functions."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import CodeLine
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Custom autograd Functions against finite differences: {"name": str, "layer": str (or "loss") that it feeds, "judged": bool, "reason": str, "input": int (position), "analytic": float, "numeric": float (both directional derivatives), "error": float (largest relative error over inputs and directions), "place": [file, line, source line] | None}.
@dataclass(frozen=True, kw_only=True)
class FunctionsFact(Known):
    """TODO."""

    KEY: ClassVar = "functions"
    IDENTITY: ClassVar = "name"

    name: str
    judged: bool
    input: int
    analytic: float
    numeric: float
    error: float
    place: CodeLine | None
    layer: str = ""
    reason: str = ""
