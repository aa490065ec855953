"""TODO scaler."""

from dataclasses import dataclass
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: The use of gradient scalers so far: {"scaled": int (losses), "used": int (backwards of those), "steps": int, "skipped": int, "updates": int, "unscaled": int, "discarded": int (backwards of a loss whose scaled version was made and not used), "direct": int (optimizer steps past the scaler on gradients that carry the scale), "seen": int (steps that were looked at), "mixed": int (scaled backwards after unscale_ and before the step), "scale": float, "first": int | None (step of the first misuse)}.
@dataclass(frozen=True, kw_only=True)
class ScalerFact(Known):
    """TODO."""

    KEY: ClassVar = "scaler"

    used: Count
    steps: Count
    discarded: Count
    direct: Count
    mixed: Count
    scale: float | None = None
    first: int | None = None
    scaled: Count | None = None
    skipped: Count | None = None
    updates: Count | None = None
    unscaled: Count | None = None
    seen: Count | None = None
