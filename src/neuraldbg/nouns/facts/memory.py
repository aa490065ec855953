"""TODO memory."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: What an optimizer remembers: {"stream": int, "type": str, "stateful": bool, "steps": int, "remade": int (new objects for the same weights, which went on from where they were), "emptied": int (its state was cleared), "every": int (median steps between two of those), "first": int | None, "same_lr": bool}.
@dataclass(frozen=True, kw_only=True)
class MemoryFact(Known):
    """TODO."""

    KEY: ClassVar = "memory"
    IDENTITY: ClassVar = "stream"

    stream: Count | None = None
    type: str = ""
    stateful: bool = False
    steps: Count | None = None
    remade: Count | None = None
    emptied: Count | None = None
    every: Count | None = None
    first: int | None = None
    same_lr: bool = False
