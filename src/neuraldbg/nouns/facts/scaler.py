"""The SCALER fact: the use of gradient scalers."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class ScalerFact(Known):
    """The calls of all gradient scalers so far, and the misuses of them."""

    KEY: ClassVar = "scaler"

    used: Count
    """Backward passes of a scaled loss."""
    steps: Count
    """Calls of ``scaler.step``."""
    discarded: Count
    """Backward passes of a loss whose scaled version was made and not used."""
    direct: Count
    """Optimizer steps past the scaler on gradients that carry its scale."""
    mixed: Count
    """Scaled backward passes after ``unscale_`` and before the step."""
    scale: float = 1.0
    """Loss scale of the latest backward pass of ``used``, 1 if there was none."""
    first: int | None = None
    """Step of the first misuse, None if there was none."""
    scaled: Count = 0
    """Losses that were scaled."""
    skipped: Count = 0
    """Calls of ``scaler.step`` in which the optimizer did not step."""
    updates: Count = 0
    """Calls of ``scaler.update``."""
    unscaled: Count = 0
    """Calls of ``scaler.unscale_`` by the program itself."""
    seen: Count = 0
    """Optimizer steps that were read; 0 if unknown."""
