"""The OPERATIONS fact: operations of the loss graphs, by layer."""

from dataclasses import field
from typing import ClassVar

from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class OperationsFact(Known):
    """All operations of the loss graphs so far, by the layer that their result goes into; no shape operations."""

    KEY: ClassVar = "operations"

    into: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of operations by layer path: those that made the layer's output, and those on the way to it from the
    layers before."""
