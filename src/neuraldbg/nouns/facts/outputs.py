"""The OUTPUTS fact: variety of a model's inputs and outputs over the batch."""

import math
from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class OutputsFact(Known):
    """The variation over the batch of what enters and leaves a called model, or a part of one."""

    KEY: ClassVar = "outputs"
    IDENTITY: ClassVar = ("part",)

    part: str = ""
    """The path of the part that was called, or the model's name if the whole model was called."""
    model: str = ""
    """The model's name."""
    batch: Count = 0
    """The number of samples."""
    inputs: tuple[Variety, ...] = ()
    """The inputs that were read, in their order."""
    outputs: tuple[Variety, ...] = ()
    """The outputs that were read, in their order."""
