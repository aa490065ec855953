"""The SYMMETRY fact: weight matrices whose rows are alike, or once were."""

import math
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class UnitRows:
    """A weight matrix just before a step, whose rows, one for each unit, are compared with each other."""

    layer: str
    """The path of the layer that holds the matrix."""
    name: str = ""
    """The parameter's name."""
    units: Count = 0
    """The number of rows."""
    spread: float = math.nan
    """The rms of the rows about their mean row, over the rms of the rows; 0 if all rows are equal."""
    zero: bool = False
    """True if all values are 0."""
    gradient: float | None = None
    """The same spread of the gradient's rows; None if there is no gradient."""
    gradient_zero: bool = False
    """True if the gradient is 0 everywhere."""


@frozen
class SymmetryFact(Known):
    """The weight matrices whose rows were alike in one of the readings so far, as of one step."""

    KEY: ClassVar = "symmetry"

    step: int = 0
    """The optimizer step before which they were read."""
    layers: tuple[UnitRows, ...] = ()
    """The matrices, in the order of the parameters."""
