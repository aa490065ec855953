"""What a cause's judge returns: where and when, the evidence weighed for and against, and what to do.

Weights are log-odds (natural logarithm): 1 is a hint, 2 speaks clearly, 3 is strong, 5 and more is as good as proof.
They add up to the prior of the cause's tier in ``ranking``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neuraldbg.nouns import Evidence, Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.cause import Tier


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
