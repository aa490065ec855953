"""The GRADIENT_COURSE fact: the agreement between the gradients of single steps."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class GradientWindow:
    """Gradients of neighbouring readings, and the part that all of them share."""

    first: int
    """First step."""
    last: int
    """Last step."""
    count: Count
    """Gradients that were read."""
    signal: float
    """Share of a gradient's squared norm that all gradients have in common, unbiased: 0 for pure noise, 1 for one
    direction."""
    error: float
    """Standard error of ``signal`` for pure noise."""


@frozen
class GradientCourseFact(Known):
    """The agreement of single gradients, from a fixed sample of their elements, logged at the end."""

    KEY: ClassVar = "gradient_course"

    stream: Count | None = None
    """Number of the optimizer, None if it is not known."""
    windows: tuple[GradientWindow, ...] = ()
    """Windows of steps, oldest first."""
