"""TODO unstepped."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Optimizers that never stepped: {"id": int, "type": str, "tensors": int, "with_grad": int, "zeroed": int (calls), "backwards": int, "moved": bool (their tensors changed all the same), "layers": [path], "lr": float, "training": bool, "steps": int (of other optimizers), "scaler_steps": int (tries of a gradient scaler)}.
@dataclass(frozen=True, kw_only=True)
class UnsteppedFact(Known):
    """TODO."""

    KEY: ClassVar = "unstepped"
    IDENTITY: ClassVar = "id"

    id: Count | None = None
    type: str = ""
    moved: bool = False
    layers: tuple[str, ...] = ()
    lr: float | None = None
    training: bool = False
    tensors: Count | None = None
    with_grad: Count | None = None
    zeroed: Count | None = None
    backwards: Count | None = None
    steps: Count | None = None
    scaler_steps: Count | None = None
