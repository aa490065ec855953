"""The UNSTEPPED fact: an optimizer that never stepped."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class UnsteppedFact(Known):
    """An optimizer of the watched models' parameters that has not stepped so far."""

    KEY: ClassVar = "unstepped"

    id: Count = 0
    """Number of the optimizer among those without a step."""
    type: str = ""
    """Name of its class."""
    moved: bool = False
    """True if its tensors changed all the same."""
    layers: tuple[str, ...] = ()
    """Paths of the layers whose parameters it holds."""
    lr: float | None = None
    """Largest learning rate of its groups, None if unknown."""
    training: bool = False
    """True if a model was called in training mode."""
    tensors: Count = 0
    """Tensors in its groups."""
    with_grad: Count = 0
    """Parameters of a model among them that had a gradient."""
    zeroed: Count = 0
    """Calls of its ``zero_grad``, or of the ``zero_grad`` of a model that holds all of its tensors."""
    backwards: Count = 0
    """Backward passes of the program."""
    steps: Count = 0
    """Steps of other optimizers."""
    scaler_steps: Count = 0
    """Calls of ``scaler.step``, of any optimizer."""
