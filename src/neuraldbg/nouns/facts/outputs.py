"""The OUTPUTS fact: variety of a model's inputs and outputs over the batch."""

import math
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class Variety:
    """The variation of one tensor over the samples of a batch, from some samples and features."""

    leaf: str = ""
    """The place of the tensor among the inputs or outputs; empty if it is the only one."""
    shape: tuple[Count, ...] = ()
    """The shape of the whole tensor."""
    across: float = math.nan
    """The rms over features of the standard deviation over the samples."""
    scale: float = math.nan
    """The rms of all values."""
    alike: float = math.nan
    """The mean cosine between two samples."""
    log_z: float | None = None
    """The mean logsumexp over the last axis; None for an input, integers, or fewer than 2 columns."""


@frozen
class OutputsFact(Known):
    """The variation over the batch of what enters and leaves a called model, or a part of one."""

    KEY: ClassVar = "outputs"

    part: str = ""
    """The path of the part that was called, or the model's name if the whole model was called."""
    model: str = ""
    """The model's name."""
    call: Count = 0
    """The number of the call among those of the part in its step, from 0."""
    batch: Count = 0
    """The number of samples."""
    inputs: tuple[Variety, ...] = ()
    """The inputs that were read, in their order."""
    outputs: tuple[Variety, ...] = ()
    """The outputs that were read, in their order."""
    pull: float | None = None
    """The direction in which the loss pulls the scores of this call: the sum of its negative gradients over the sum of
    their sizes, 1 if it wants all scores higher and -1 if it wants all lower. None if there is no gradient, or if the
    output is not one score for each sample."""
