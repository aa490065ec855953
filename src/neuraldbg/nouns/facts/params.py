"""The PARAMS fact: the parameters of all watched models that something keeps from training."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class ParamsFact(Known):
    """Parameters of all watched models, as read at the first steps and then at steps 2**k."""

    KEY: ClassVar = "params"

    total: Count = 0
    """Parameters of all watched models."""
    tied: tuple[tuple[str, ...], ...] = ()
    """Names of each parameter that has more than one, in the order of the model."""
    frozen: tuple[str, ...] = ()
    """Names of parameters with requires_grad=False in layers that were called."""
    not_in_optimizer: tuple[str, ...] = ()
    """Names of parameters that got a gradient and are in no group of any optimizer seen."""
    no_grad: tuple[str, ...] = ()
    """Names of parameters that require a gradient and never had one."""
    uncalled: tuple[str, ...] = ()
    """Names of parameters that require a gradient, in layers that were never called."""
    zero_lr: tuple[str, ...] = ()
    """Names of parameters that got a gradient, in a group with a learning rate of 0."""
