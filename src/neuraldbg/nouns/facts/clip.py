"""TODO clip."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Gradient clipping so far: {"stream": int, "kind": "norm" | "value", "limit": float, "calls": int, "right": int (after the last backward and before the step), "after_step": int, "before_backward": int, "between": int (more gradient came after it), "empty": int (no gradient was there), "scaled": int (the loss scale was still in), "scale": float, "exceeded": int (misplaced calls after which the step was taken with more than the limit), "worst": float (largest gradient stepped with in those, as a multiple of the limit), "first": int | None (first such step)}.
@dataclass(frozen=True, kw_only=True)
class ClipFact(Known):
    """TODO."""

    KEY: ClassVar = "clip"
    IDENTITY: ClassVar = "stream"

    scaled: Count
    kind: str = ""
    limit: float | None = None
    scale: float | None = None
    worst: float | None = None
    first: int | None = None
    stream: Count | None = None
    calls: Count | None = None
    right: Count | None = None
    after_step: Count | None = None
    before_backward: Count | None = None
    between: Count | None = None
    empty: Count | None = None
    exceeded: Count | None = None
