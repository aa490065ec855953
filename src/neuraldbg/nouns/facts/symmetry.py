"""TODO symmetry."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Weight matrices whose rows (one a unit) are alike, or were: {"step": int, "layers": [{"name": str, "layer": str, "units": int, "spread": float (rms of the rows about their mean row / rms of the rows), "zero": bool (all values are 0), "gradient": float | None (the same spread of the gradient; None without one), "gradient_zero": bool}]}.
@dataclass(frozen=True, kw_only=True)
class SymmetricLayer:
    """TODO."""

    layer: str
    name: str = ""
    units: Count | None = None
    spread: float | None = None
    zero: bool = False
    gradient: float | None = None
    gradient_zero: bool = False


@dataclass(frozen=True, kw_only=True)
class SymmetryFact(Known):
    """TODO."""

    KEY: ClassVar = "symmetry"

    step: int | None = None
    layers: tuple[SymmetricLayer, ...] = ()
