"""The EQUAL_WEIGHTS fact: trained weight matrices that hold the same numbers."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class EqualPair:
    """Two weight matrices of one shape, each with memory of its own, that were equal."""

    names: tuple[str, ...] = ()
    """Names of the two parameters."""
    models: tuple[str, ...] = ()
    """Names of the models that hold them, in the order of ``names``."""
    read: Count = 0
    """Steps at which they were compared since they were equal first."""
    equal: Count = 0
    """Those at which they were equal to the last bit."""
    moved: Count = 0
    """Those at which they were equal, with other values than when they were equal before."""
    first: Count = 0
    """Step at which they were equal first."""
    last: Count = 0
    """Step of the newest reading."""


@frozen
class EqualWeightsFact(Known):
    """The pairs that were equal more than once so far."""

    KEY: ClassVar = "equal_weights"

    pairs: tuple[EqualPair, ...] = ()
    """At most 16, those that moved most first."""
    matrices: Count = 0
    """Weight matrices that were read."""
