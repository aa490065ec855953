"""TODO dropout."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Dropout that was at work in a training pass, read from the graph of the loss: {"places": [{"before": str (the layer that it feeds, or "loss"), "p": float (share of zeros)}]}.
@dataclass(frozen=True, kw_only=True)
class DropoutPlace:
    """TODO."""

    before: str
    p: float


@dataclass(frozen=True, kw_only=True)
class DropoutFact(Known):
    """TODO."""

    KEY: ClassVar = "dropout"

    places: tuple[DropoutPlace, ...] = ()
