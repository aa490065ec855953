"""The MODES fact: the layers of a model that were in evaluation mode while it was trained."""

from typing import ClassVar

from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class ModesFact(Known):
    """Modes of a model and its layers in a forward pass that builds a graph."""

    KEY: ClassVar = "modes"

    model: str = ""
    """Name of the model."""
    training: bool = False
    """Training mode of the model as a whole."""
    eval_layers: tuple[str, ...] = ()
    """Paths of the layers of ``mode_layers`` that were in evaluation mode."""
    mode_layers: tuple[str, ...] = ()
    """Paths of all layers that differ between the modes: dropout that drops, and batch norm with running statistics."""
