"""TODO modes."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Modes during a forward pass with gradients: {"model": str, "training": bool, "eval_layers": [path of dropout or batch-norm layers in eval mode], "mode_layers": [path of all dropout and batch-norm layers]}.
@dataclass(frozen=True, kw_only=True)
class ModesFact(Known):
    """TODO."""

    KEY: ClassVar = "modes"
    IDENTITY: ClassVar = "model"

    model: str = ""
    training: bool = False
    eval_layers: tuple[str, ...] = ()
    mode_layers: tuple[str, ...] = ()
