"""TODO evaluation_modes."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: Passes of a trained model without gradients, or without a backward: {"model": str, "bursts": int (steps before which there were some), "train_bursts": int (those in training mode), "eval_bursts": int, "passes": int (in training mode), "longest": int (such passes in one burst), "repeated": int (passes with the input of the pass before), "same": bool (each burst has one pass, always with one input that is not trained on), "steps": int, "grad": bool (gradients were left on), "first": int, "dropout": [path], "norms": [path] (batch norm whose statistics moved)}.
@dataclass(frozen=True, kw_only=True)
class EvaluationModesFact(Known):
    """TODO."""

    KEY: ClassVar = "evaluation_modes"
    IDENTITY: ClassVar = "model"

    model: str
    same: bool
    grad: bool
    first: int
    dropout: tuple[str, ...]
    norms: tuple[str, ...]
    train_bursts: Count
    eval_bursts: Count
    passes: Count
    longest: Count
    repeated: Count
    steps: Count
    bursts: Count | None = None
