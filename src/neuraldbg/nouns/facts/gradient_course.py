"""TODO gradient_course."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: How far single gradients agree, from a fixed sample of their elements, logged at the end: {"stream": int, "windows": [{"first": int, "last": int (steps), "count": int (gradients), "signal": float (share of a gradient's squared norm that all of them have in common, unbiased: 0 for pure noise, 1 for one direction), "error": float (its standard error for pure noise)}]}.
@dataclass(frozen=True, kw_only=True)
class GradientWindow:
    """TODO."""

    first: int
    last: int
    count: Count
    signal: float
    error: float


@dataclass(frozen=True, kw_only=True)
class GradientCourseFact(Known):
    """TODO."""

    KEY: ClassVar = "gradient_course"
    IDENTITY: ClassVar = "stream"

    stream: Count | None = None
    windows: tuple[GradientWindow, ...] = ()
