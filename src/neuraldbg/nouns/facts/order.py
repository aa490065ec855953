"""TODO order."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: The order of one optimizer's loop, from after the step before up to this step: {"stream": int, "order": [token]} with tokens "zero_grad", "forward", "backward", "grad" (autograd.grad), "unscale", "clip", "clip_value", "step", "update" (of a scaler), "schedule". Equal neighbours are merged, a repeated block is written once. At most 6 versions are kept of an optimizer.
@dataclass(frozen=True, kw_only=True)
class OrderFact(Known):
    """TODO."""

    KEY: ClassVar = "order"
    IDENTITY: ClassVar = "stream"

    order: tuple[str, ...]
    stream: Count | None = None
