"""The NORMS fact: batch normalisation in training passes, layer by layer."""

import math
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class NormLayer:
    """A batch-norm layer in one call: its settings, and its running statistics beside those of the batch."""

    layer: str
    """The layer's path."""
    momentum: float | None = None
    """The weight of the new batch in the running statistics; None if they average over all batches."""
    mean_gap: float | None = None
    """The median over channels of |batch mean - running mean| / running standard deviation, before the update; None if
    it cannot be computed."""
    var_gap: float | None = None
    """The median over channels of |ln(batch variance / running variance)|, before the update; None if it cannot be
    computed."""
    drift: float = math.nan
    """The median over channels of |running mean - that when first seen| / running standard deviation."""
    tracking: bool = False
    """True if the layer keeps running statistics."""
    frozen: bool = False
    """True if the layer's part of the model has parameters, and none of them requires gradients."""
    still: bool = False
    """True if the weights of that part are bitwise as when first seen."""
    training: bool = False
    """True if the layer was in training mode."""
    fresh: bool = False
    """True if all running means were 0 and all running variances 1 when first seen."""
    moved: bool = False
    """True if the running statistics have changed since the layer was first seen."""
    batch: Count | None = None
    """The number of samples in the batch; None if it is not known."""
    elements: Count | None = None
    """The number of values over which the statistic of one channel is taken; None if it is not known."""


@frozen
class NormsFact(Known):
    """The batch-norm layers that were called in the training passes of one step."""

    KEY: ClassVar = "norms"

    step: int = 0
    """The optimizer step in which they were read."""
    layers: tuple[NormLayer, ...] = ()
    """The layers, in the order of the model."""
