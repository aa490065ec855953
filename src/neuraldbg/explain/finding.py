"""The result of a cause's judge: layer and step, the evidence weighed for and against, and the remedy.

Weights are log-odds (natural logarithm): 1 is a hint, 2 speaks clearly, 3 is strong, 5 and more is as good as proof.
They add up to the prior of the cause's tier in ``ranking``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from neuraldbg.nouns import Evidence, Remedy

if TYPE_CHECKING:
    from neuraldbg.nouns.facts.kinds import SourceLine


class Tier(IntEnum):
    """The directness with which evidence shows a cause; a higher tier explains away the symptoms of a lower one."""

    PALLIATIVE = 0
    """Shown by symptoms alone, such as a learning rate: true only when no specific cause explains the run."""
    STATISTICAL = 1
    """Shown by a pattern of statistics over layers or steps."""
    SPECIFIC = 2
    """Shown by a measurement that few other causes produce: statistics of the batch, of one operation."""
    CERTAIN = 3
    """Read from the program itself: wiring of loop, loss graph, modes, optimizer membership."""


@dataclass(frozen=True)
class Finding:
    """One cause with the evidence that its judge weighed for one run."""

    sentence: str
    """The fault, as the end of "likely due to ...": a noun phrase with the measured numbers, no full stop."""
    evidence: tuple[Evidence, ...]
    remedy: Remedy
    layer: str | None = None
    step: int | None = None
    """First step at which the cause was at work; None if unknown."""
    failure: str = "training failure"
    """The failure that the cause led to: "gradient vanishing", "loss divergence"."""
    equivalent: tuple[str, ...] = ()
    at: SourceLine | None = None
    """Line of the user's code at which the fault is, where the cause knows it."""
    doing: str = ""
    """Operation on that line: "the layer is called"."""
    tier: Tier | None = None
    """Tier of the cause in this run, where its evidence is more direct than usual; None if it is the cause's own."""
    title: str = ""
    """Title of the cause in this run, where its evidence asks for other words; "" if it is the cause's own."""
    since: int | None = None
    """Last step before ``step`` at which the cause was known not to be at work, where the steps between were not read;
    None if ``step`` is exact."""
    explains: frozenset[str] = frozenset()
    """Kinds of events that the cause explains in this run beside those that it always does: a fault that sets in late
    makes a loss rise which one from the start keeps from falling."""
    ranks: tuple[int, ...] = ()
    """Ranks of the job that the cause is on, where several are judged together; empty if it is on all or between
    them."""

    @property
    def log_odds(self) -> float:
        """The sum of the evidence in log-odds, before the prior and before explaining-away."""
        return sum(item.weight if item.supports else -item.weight for item in self.evidence)


@dataclass
class Weighing:
    """Collector of evidence, filled while a judge goes through the case."""

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
        at: SourceLine | None = None,
        doing: str = "",
        tier: Tier | None = None,
        title: str = "",
        since: int | None = None,
        explains: frozenset[str] = frozenset(),
        ranks: tuple[int, ...] = (),
    ) -> Finding:
        """Return the finding, with the evidence collected so far."""
        evidence, where = tuple(self.items), layer or None
        exact = step is None or since is None or since >= step - 1
        return Finding(
            sentence, evidence, remedy, where, step, failure, equivalent, at, doing, tier, title,
            None if exact else since, explains, ranks,
        )  # fmt: skip
