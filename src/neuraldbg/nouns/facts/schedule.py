"""TODO schedule."""

from dataclasses import dataclass, field
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known


# FORMER TEXT: One learning-rate scheduler so far: {"id": int, "type": str, "stream": int | None, "params": {name: number | [number]} (T_max, step_size, milestones, total_steps, gamma, ...), "made": int (step), "steps": int, "optimizer_steps": int (of its optimizer since then), "double": int (steps without a step or a backward between), "early": int (steps before the first of its optimizer), "position": float (its last_epoch), "base_lr": float, "passes": int (passes over the training DataLoader so far, 0 if unknown), "pass_steps": int (optimizer steps in one of them), "waits": of a ReduceLROnPlateau {"mode": "min" | "max", "first", "last": float (what it was told), "rises": int, "falls": int (times that rose or fell), "cuts": int (times it lowered the rate), "cut_at": int | None (step of the first)}}.
@dataclass(frozen=True, kw_only=True)
class PlateauWaits:
    """TODO."""

    first: float
    last: float
    falls: Count
    cuts: Count
    cut_at: int | None
    mode: str = ""
    rises: Count | None = None


@dataclass(frozen=True, kw_only=True)
class ScheduleFact(Known):
    """TODO."""

    KEY: ClassVar = "schedule"
    IDENTITY: ClassVar = "id"

    type: str
    stream: Count | None
    made: int
    steps: int
    pass_steps: int
    id: Count | None = None
    params: dict[str, float | tuple[float | None, ...]] = field(default_factory=dict)
    position: float | None = None
    base_lr: float | None = None
    waits: PlateauWaits | None = None
    optimizer_steps: int | None = None
    double: int | None = None
    early: int | None = None
    passes: int | None = None
