"""TODO operations."""

from dataclasses import dataclass, field
from typing import ClassVar

from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Every operation of the loss graphs so far, by where its result goes: {"into": {layer path: [op, ...]}}: those that made the layer's output and those on the way to it from the layers before. Shape operations are left out.
@dataclass(frozen=True, kw_only=True)
class OperationsFact(Known):
    """TODO."""

    KEY: ClassVar = "operations"

    into: dict[str, tuple[str, ...]] = field(default_factory=dict)
