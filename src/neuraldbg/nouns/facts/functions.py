"""The FUNCTIONS fact: custom autograd Functions, compared with finite differences."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import SourceLine
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class FunctionsFact(Known):
    """A custom autograd Function, whose backward is compared with finite differences of its forward."""

    KEY: ClassVar = "functions"

    name: str
    """The name of the Function's class."""
    judged: bool
    """True if the comparison was made."""
    input: int
    """The position of the input with the largest error, counted from 0."""
    analytic: float
    """The directional derivative by the Function's backward."""
    numeric: float
    """The same directional derivative by finite differences."""
    error: float
    """The largest relative error over inputs and directions."""
    place: SourceLine | None
    """The line that calls the Function; None if it is not known."""
    layer: str = ""
    """The path of the layer that the Function feeds, or "loss"."""
    reason: str = ""
    """The reason why it could not be judged; empty if it was."""
