"""TODO resume."""

from dataclasses import dataclass, field
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: A checkpoint that was loaded with ``torch.load`` and holds the state of an optimizer: {"id": int, "where": str (key), "states": int, "keys": [str] (exp_avg, momentum_buffer, ...), "lr": float | None, "numbers": {key: float} (epoch, step, loss beside it), "model_loaded": int | None (step at which weights of it were put into a model), "optimizer_loaded": bool, "loaded_steps": bool (whether an optimizer that was given a state ever stepped)}.
@dataclass(frozen=True, kw_only=True)
class ResumeFact(Known):
    """TODO."""

    KEY: ClassVar = "resume"
    IDENTITY: ClassVar = "id"

    lr: float | None
    id: Count | None = None
    where: str = ""
    states: Count | None = None
    keys: tuple[str, ...] = ()
    numbers: dict[str, float] = field(default_factory=dict)
    model_loaded: int | None = None
    optimizer_loaded: bool = False
    loaded_steps: bool = False
