"""TODO ties."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Pairs of weights that began equal, or that a declaration ties, in storages of their own: {"pairs": [{"a": name, "b": name, "transposed": bool, "started_equal": bool, "equal": bool, "declared": str (what declares it, or ""), "trained": [bool, bool], "drifted": int | None (step at which they were first seen to differ), "distance": float (rms of the difference over rms of a), "untied": str (what made two of one parameter, or "")}]}.
@dataclass(frozen=True, kw_only=True)
class WeightPair:
    """TODO."""

    a: str
    b: str
    transposed: bool
    started_equal: bool
    equal: bool
    declared: str
    trained: tuple[bool, bool]
    distance: float
    untied: str
    drifted: int | None = None


@dataclass(frozen=True, kw_only=True)
class TiesFact(Known):
    """TODO."""

    KEY: ClassVar = "ties"

    pairs: tuple[WeightPair, ...] = ()
