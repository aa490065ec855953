"""TODO cuts."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from neuraldbg.nouns.facts.kinds import CodeLine
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Layers that a training pass calls and the loss's graph never reaches: {"model": str, "cut": {"after": path, "before": path, "how": "shared" (the input of the one is the output of the other) | "shape" (it has its shape) | "next", "place": [file, line, source line] | None} | None, "no_grad": {path: [file, line, source line] | None} (called with gradients off inside a pass that has them on), "reached": [path] (layers with a gradient), "unreached": [path]}.
@dataclass(frozen=True, kw_only=True)
class GraphCut:
    """TODO."""

    after: str
    before: str
    how: Literal["shared", "shape", "next"]
    place: CodeLine | None


@dataclass(frozen=True, kw_only=True)
class CutsFact(Known):
    """TODO."""

    KEY: ClassVar = "cuts"
    IDENTITY: ClassVar = "model"

    model: str
    cut: GraphCut | None
    no_grad: dict[str, CodeLine | None]
    unreached: tuple[str, ...]
    reached: tuple[str, ...] = ()
