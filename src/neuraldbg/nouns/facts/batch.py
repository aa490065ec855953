"""TODO batch."""

from dataclasses import dataclass, field
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count, Wide
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: The root model's inputs: {"model": str, "inputs": {leaf: {"shape": [int], "dtype": str, "column_std_min": float, "column_std_max": float, "column_mean_absmax": float, "image": bool}}}. Columns are features of 2-D inputs.
@dataclass(frozen=True, kw_only=True)
class BatchLeaf:
    """TODO."""

    shape: tuple[Count, ...] = ()
    dtype: str = ""
    image: bool = False
    column_std_min: float | None = None
    column_std_max: float | None = None
    column_mean_absmax: float | None = None
    min: Wide | None = None
    max: Wide | None = None


@dataclass(frozen=True, kw_only=True)
class BatchFact(Known):
    """TODO."""

    KEY: ClassVar = "batch"
    IDENTITY: ClassVar = "model"

    model: str = ""
    inputs: dict[str, BatchLeaf] = field(default_factory=dict)
