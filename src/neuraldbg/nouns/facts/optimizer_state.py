"""The OPTIMIZER_STATE fact: second moments of an adaptive optimizer against its epsilon."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class OptimizerStateFact(Known):
    """Second moments of an adaptive optimizer, read from samples of its state after a step."""

    KEY: ClassVar = "optimizer_state"

    eps: float
    """Epsilon of the first tensor's group."""
    eps_kept: float
    """Epsilon as ``dtype`` holds it, 0 where it underflows."""
    dtype: str
    """dtype of the state."""
    stream: Count = 0
    """Number of the optimizer."""
    key: str = ""
    """Name of the second moment in the optimizer's state, such as ``exp_avg_sq``."""
    params: Count = 0
    """Parameters that were sampled."""
    below_eps: float | None = None
    """Share of elements with sqrt(v) <= eps among those above 0, median over the parameters; None if there are none."""
    typical: float = 0.0
    """Median of sqrt(v) over the elements above 0, median over the parameters; 0 if there are none."""
