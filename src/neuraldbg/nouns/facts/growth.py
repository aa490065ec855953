"""The GROWTH fact: tensors that live on from step to step, and how much memory they take."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count, SourceLine
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen

LEAST_COUNTS = 5
"""Counts from which on something can have grown in all of the last intervals between them."""
GROWN = 128 << 20
"""Bytes from which on resident or device memory is said to grow where nothing was found that is kept: allocators and
libraries take some tens of megabytes in the first minutes."""


@frozen
class Survivors:
    """Tensors of one kind whose number grows from step to step."""

    type: str
    """What they are: "Tensor with its graph", "Tensor", "Parameter", ..."""
    shape: tuple[Count, ...]
    """Their shape; that of the largest if shapes differ."""
    dtype: str
    """Their dtype, as "float32"."""
    per_step: float
    """How many are added in a step, over the counted steps."""
    bytes_per_step: float
    """Bytes that are added in a step, with the tensors that their graphs keep alive."""
    operations_per_step: float = 0.0
    """Operations of autograd graphs that are kept alive in a step more, over the counted steps."""
    alive: Count
    """How many were alive at the last count."""
    with_graph: bool = False
    """True if they have a graph, which keeps all tensors of its forward pass alive."""
    grows: bool = False
    """True for one tensor or array without a graph that becomes larger itself, as by ``torch.cat``."""
    made: SourceLine | None = None
    """The line of the program that made them; None if it is not known."""
    kept: SourceLine | None = None
    """The line of the program that keeps them; None if it is not known."""
    mended: str = ""
    """The line that keeps them as it would keep no graph, ``total_loss += loss.item()``; empty if it is not known."""
    holder: str = ""
    """The object that keeps them, as code: "history", "self.losses", "total_loss"; empty if it is not known."""


@frozen
class GrowthFact(Known):
    """Memory that does not come back."""

    KEY: ClassVar = "growth"

    first: Count
    """The step of the first count."""
    last: Count
    """The step of the last count."""
    counts: Count = 0
    """How often tensors were counted; 0 if only the memory of process and device was read."""
    resident_per_step: float | None = None
    """Bytes by which the resident memory of the process grew in a step, as the slope of its lowest values."""
    device_per_step: float | None = None
    """Bytes by which the allocated memory of the device grew in a step."""
    slope_first: Count | None = None
    """First of the steps between which the memory of process and device grew so; None if it was not read for long."""
    slope_last: Count | None = None
    """Last of those steps."""
    complete: bool = True
    """False if some count left objects out, since there were too many."""
    by_hand: bool = False
    """True if the program gave the memory step by step: what keeps it is not searched for."""
    survivors: tuple[Survivors, ...] = ()
    """Tensors whose number grows, most bytes first; empty if no tensor's does."""

    @property
    def searched(self) -> bool:
        """True if tensors were counted so often, and so completely, that having found none says something."""
        return self.counts >= LEAST_COUNTS and self.complete

    @property
    def slope_steps(self) -> tuple[int, int]:
        """First and last step between which memory grew by ``resident_per_step`` and ``device_per_step``."""
        if self.slope_first is None or self.slope_last is None:  # files from before 2026-11-26
            return self.first, self.last
        return self.slope_first, self.slope_last

    def risen(self) -> dict[str, float]:
        """Return the bytes a step by which resident and device memory grew, by name: what is kept was found, or it
        became ``GROWN`` bytes over the steps.

        >>> from neuraldbg.nouns.facts.growth import GrowthFact
        >>> GrowthFact(first=0, last=100, resident_per_step=2.0**21).risen()
        {'resident memory': 2097152.0}
        """
        first, last = self.slope_steps
        slopes = {"resident memory": self.resident_per_step, "memory of the device": self.device_per_step}
        least = 1.0 if self.survivors else GROWN / max(1, last - first)
        return {name: slope for name, slope in slopes.items() if slope is not None and slope >= least}
