"""The UNUSED fact: values that the functions of a training step make, or are given, and never use."""

from typing import ClassVar, Literal

from neuraldbg.nouns.facts.kinds import SourceLine
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class UnusedValue:
    """One name that is bound in a function and never read there."""

    name: str
    """Name of the variable."""
    how: Literal["assigned", "unpacked", "parameter"]
    """How it is bound: by a statement of its own, as one of a tuple, or by the caller."""
    place: SourceLine
    """The line that binds it."""
    function: str = ""
    """Name of the function, "<module>" for a script."""


@frozen
class UnusedFact(Known):
    """The unused values, in the order of their lines, at most 32."""

    KEY: ClassVar = "unused"

    values: tuple[UnusedValue, ...] = ()
    """At most 32."""
