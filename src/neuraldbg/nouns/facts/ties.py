"""The TIES fact: pairs of weights that are meant to be one."""

from typing import ClassVar

from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class WeightPair:
    """A pair of weights that began equal, or that a declaration ties, in storages of their own."""

    a: str
    """The name of the first parameter."""
    b: str
    """The name of the second parameter."""
    transposed: bool
    """True if the second is compared with the transpose of the first."""
    started_equal: bool
    """True if the two were equal to the last bit before the first step."""
    equal: bool
    """True if the two are equal to the last bit now."""
    declared: str
    """The attribute of the model or its configuration that declares them tied; empty if there is none."""
    trained: tuple[bool, bool]
    """True for each of the two that an optimizer holds."""
    distance: float
    """The rms of their difference, over the rms of the first."""
    untied: str
    """The call that made two of one parameter; empty if there was none."""
    drifted: int | None = None
    """The step at which the two were first seen to differ; None if they never did."""


@frozen
class TiesFact(Known):
    """The pairs of weights that should share one tensor and are two tensors."""

    KEY: ClassVar = "ties"

    pairs: tuple[WeightPair, ...] = ()
    """The pairs, in the order in which they were found."""
