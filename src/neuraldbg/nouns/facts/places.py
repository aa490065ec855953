"""The PLACES fact: the lines of the user's code at which a step happens."""

from dataclasses import dataclass, field
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import SourceLine
from neuraldbg.nouns.facts.known import Known


@dataclass(frozen=True, kw_only=True)
class PlacesFact(Known):
    """Lines of the user's code by what happens there, in order of appearance, at most 4 of a kind."""

    KEY: ClassVar = "places"
    WHOLE: ClassVar = "lines"

    lines: dict[str, tuple[SourceLine, ...]] = field(default_factory=dict)
    """Lines by kind: "forward" (a model is called in training), "evaluation" (a model is called to evaluate it),
    "backward" (a loss is differentiated), "step" (an optimizer steps), "optimizer" and "scheduler" (one is made)."""
