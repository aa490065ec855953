"""What a cause's judge returns: where and when, the evidence weighed for and against, and what to do.

Weights are log-odds (natural logarithm): 1 is a hint, 2 speaks clearly, 3 is strong, 5 and more is as good as proof.
They add up to the prior of the cause's tier in ``ranking``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from neuraldbg.nouns import Evidence, Remedy


class Tier(IntEnum):
    """How directly a cause's own evidence shows it; a higher tier explains a lower one's symptoms away."""

    PALLIATIVE = 0
    """Named by symptoms alone, such as a learning rate: true only when no specific cause explains the run."""
    STATISTICAL = 1
    """Named by a pattern of statistics over layers or steps."""
    SPECIFIC = 2
    """Named by a measurement that few other causes produce: statistics of the batch, of one operation."""
    CERTAIN = 3
    """Read from the program itself: wiring of loop, loss graph, modes, optimizer membership."""


@dataclass(frozen=True)
class Finding:
    """One cause, weighed for one run."""

    sentence: str
    """What is wrong, as the end of "likely due to ...": a noun phrase with the measured numbers, no full stop."""
    evidence: tuple[Evidence, ...]
    remedy: Remedy
    layer: str | None = None
    step: int | None = None
    """The first step at which the cause was at work; None when that is not known."""
    failure: str = "training failure"
    """What it led to: "gradient vanishing", "loss divergence"."""
    equivalent: tuple[str, ...] = ()
    tier: Tier | None = None
    """Set where this run shows the cause more directly than its kind usually is."""

    @property
    def log_odds(self) -> float:
        """The sum of the evidence, before the prior and before explaining-away."""
        return sum(item.weight if item.supports else -item.weight for item in self.evidence)


@dataclass
class Weighing:
    """Collects evidence while a judge goes through the case."""

    items: list[Evidence] = field(default_factory=list)

    def speaks(
        self,
        statement: str,
        weight: float,
        value: float | str | None = None,
        threshold: float | str | None = None,
    ) -> None:
        """Add a measured statement that supports the cause."""
        self.items.append(Evidence(statement, True, weight, value, threshold))

    def against(
        self,
        statement: str,
        weight: float,
        value: float | str | None = None,
        threshold: float | str | None = None,
    ) -> None:
        """Add a measured statement that contradicts the cause, or expected evidence that is absent."""
        self.items.append(Evidence(statement, False, weight, value, threshold))

    def conclude(
        self,
        sentence: str,
        remedy: Remedy,
        *,
        layer: str | None = None,
        step: int | None = None,
        failure: str = "training failure",
        equivalent: tuple[str, ...] = (),
        tier: Tier | None = None,
    ) -> Finding:
        """Close the weighing."""
        return Finding(sentence, tuple(self.items), remedy, layer or None, step, failure, equivalent, tier)
