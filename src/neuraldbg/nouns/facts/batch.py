"""The BATCH fact: shapes, dtypes and scales of the root model's inputs."""

from dataclasses import field
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count, Wide
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class BatchLeaf:
    """One tensor among the inputs of the root model, with the scale of its columns if it is 2-D."""

    shape: tuple[Count, ...] = ()
    """Shape of the tensor, the batch first."""
    dtype: str = ""
    """Dtype without ``torch.``."""
    image: bool = False
    """True if it has four axes, as a batch of images."""
    column_std_min: float | None = None
    """Smallest standard deviation of a column (a feature of a 2-D input) that is not constant, 0 if all are, None if
    there are no columns."""
    column_std_max: float | None = None
    """Largest standard deviation of a column, None if there are no columns."""
    column_mean_absmax: float | None = None
    """Largest absolute mean of a column, None if there are no columns."""
    min: Wide | None = None
    """Smallest element of a tensor of integers, None for other tensors."""
    max: Wide | None = None
    """Largest element of a tensor of integers, None for other tensors."""


@frozen
class BatchFact(Known):
    """The inputs of the root model as they were in its latest forward pass."""

    KEY: ClassVar = "batch"

    model: str = ""
    """Name of the root model."""
    inputs: dict[str, BatchLeaf] = field(default_factory=dict)
    """Tensors by the name of their leaf, which is empty for a single positional input; at most eight."""
