"""The SCHEDULE fact: one learning-rate scheduler, and its steps against the optimizer's."""

from dataclasses import field
from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class PlateauWaits:
    """The metric that a ReduceLROnPlateau was given so far, and its cuts."""

    first: float
    """Metric at the first call."""
    last: float
    """Metric at the latest call."""
    falls: Count
    """Times that the metric fell."""
    cuts: Count
    """Times that the scheduler lowered the learning rate."""
    cut_at: int | None
    """Step of the first cut, None if there was none."""
    mode: str = ""
    """``min`` or ``max``: the direction in which the metric gets better."""
    rises: Count = 0
    """Times that the metric rose."""


@frozen
class ScheduleFact(Known):
    """One learning-rate scheduler so far: its settings, its steps and its optimizer's."""

    KEY: ClassVar = "schedule"

    type: str
    """Name of its class."""
    stream: Count | None
    """Number of its optimizer, None if that never stepped."""
    made: int
    """Step at which it was made."""
    steps: int
    """Steps that it took."""
    pass_steps: int
    """Optimizer steps in the first pass over the training DataLoader, 0 if unknown."""
    id: Count = 0
    """Number of the scheduler, in the order in which they were made."""
    optimizer: Count = 0
    """Number of its optimizer object among those of all schedulers: a new optimizer may go on with a stream."""
    params: dict[str, float | tuple[float | None, ...]] = field(default_factory=dict)
    """Settings by name: ``T_max``, ``step_size``, ``milestones``, ``total_steps``, ``gamma`` and others."""
    words: dict[str, str] = field(default_factory=dict)
    """Settings that are words, by name: ``mode``, ``threshold_mode``, ``anneal_strategy``."""
    position: float | None = None
    """Its ``last_epoch``, None if that is no number."""
    base_lr: float | None = None
    """Largest of its ``base_lrs``, None if unknown."""
    waits: PlateauWaits | None = None
    """The metric of a ReduceLROnPlateau, None for any other."""
    optimizer_steps: int = 0
    """Steps of its optimizer since it was made."""
    double: int = 0
    """Steps that it took with no optimizer step and no backward pass since its step before."""
    early: int = 0
    """Steps that it took before the first of its optimizer."""
    passes: int = 0
    """Passes over the training DataLoader that were seen so far: all of them or fewer, 0 if unknown."""
