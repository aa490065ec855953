"""The DROPOUT fact: dropout in a training pass."""

from typing import ClassVar

from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class DropoutPlace:
    """A place in the graph of the loss at which values are dropped."""

    before: str
    """The path of the layer that the dropout feeds, or "loss"."""
    p: float
    """The share of values that are set to 0, between 0 and 1."""


@frozen
class DropoutFact(Known):
    """The dropout that was at work in a training pass, read from the graph of the loss."""

    KEY: ClassVar = "dropout"

    places: tuple[DropoutPlace, ...] = ()
    """The places, each once for each probability."""
