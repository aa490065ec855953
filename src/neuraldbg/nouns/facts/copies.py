"""TODO copies."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: A model that is evaluated and in no optimizer, beside the trained one it is a copy of: {"model": str, "names": [str] (by which the program holds it), "of": str, "kind": "AveragedModel" | "copy", "evaluated": int (steps before which it was), "first": int, "last": int (those steps), "began_equal": bool (its weights were those of the trained model at step 0), "constant": bool, "follows": bool (bitwise the trained one's whenever evaluated), "moved": bool (the trained one's did), "averaged": int | None (n_averaged), "stale_norms": [path] (batch norm that never saw a batch, in evaluation mode), "swapped": bool (the trained model itself, put back to its first weights for evaluation), "lag": float | None (how far the copy is from all multiples of the trained one's first weights, relative to how far the trained one is), "written": int (looks before which its weights were written to), "refreshed": int (looks before which its running statistics had changed, without a pass of its own in training mode), "unseen": bool (steps went by unseen: what is said of evaluations is of those that were seen), "apart": bool (if so: its weights are not the trained one's when the run is summed up)}.
@dataclass(frozen=True, kw_only=True)
class CopiesFact(Known):
    """TODO."""

    KEY: ClassVar = "copies"
    IDENTITY: ClassVar = "model"

    model: str
    names: tuple[str, ...]
    of: str
    kind: str
    averaged: int | None
    stale_norms: tuple[str, ...]
    lag: float | None
    began_equal: bool
    constant: bool
    follows: bool
    moved: bool
    swapped: bool
    evaluated: int
    first: int
    last: int
    written: int
    refreshed: int
    unseen: bool = False
    apart: bool = False
