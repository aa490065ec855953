"""The PRECISION fact: the number formats of the training."""

from typing import ClassVar

from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class PrecisionFact(Known):
    """The dtypes of parameters and of autocast, and the use of a gradient scaler."""

    KEY: ClassVar = "precision"

    autocast: str | None = None
    """dtype of autocast at the end of a step, None if it is off."""
    param_dtypes: tuple[str, ...] = ()
    """dtypes of the parameters, each once and sorted."""
    scaler: bool = False
    """True if a gradient scaler gave the step a loss scale."""
