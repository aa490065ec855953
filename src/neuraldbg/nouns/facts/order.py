"""The ORDER fact: the calls of one optimizer's loop, in their order."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class OrderFact(Known):
    """The order of one optimizer's loop, from after the step before up to this step.

    A version for each new order, at most 6 for an optimizer.
    """

    KEY: ClassVar = "order"

    order: tuple[str, ...]
    """Calls: ``zero_grad``, ``forward``, ``backward``, ``grad`` (autograd.grad), ``unscale``, ``clip``,
    ``clip_value``, ``step``, ``update`` (of a scaler), ``schedule``. Equal neighbours are merged, and a repeated block
    is written once."""
    stream: Count = 0
    """Number of the optimizer."""
