"""The TERMS fact: the variables that a loss is the sum of, read where its backward pass is called."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count, SourceLine
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class NamedTerm:
    """One summand of a loss, by the name that it has in the program."""

    name: str
    """Name of the variable."""
    place: SourceLine | None = None
    """The line that calls the backward pass."""
    read: Count = 0
    """Backward passes at which it was read."""
    graph: Count = 0
    """Those at which it had a graph, so that it has gradients."""
    changes: Count = 0
    """Those at which its value differed from that of the reading before."""
    low: float | None = None
    """Smallest finite value, None if there is none."""
    high: float | None = None
    """Largest finite value, None if there is none."""


@frozen
class TermsFact(Known):
    """The summands that were read so far, at most 16."""

    KEY: ClassVar = "terms"

    terms: tuple[NamedTerm, ...] = ()
    """In the order in which they were found."""
