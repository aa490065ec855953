"""The map from weighed evidence to a probability, read from ``calibration.json``.

A finding's score is its evidence minus the part that another cause explains, in the units of the judges' weights. The
probability that it is a true cause of the run is ``sigmoid(slope * score + prior[tier] + offset[cause])``, and no more
than ``cap[tier]``. The numbers are fitted by ``make accuracy`` on a part of the fault corpus and checked on the rest;
the file records the programs, the date and the command.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from neuraldbg.checked_values import CheckedValues, Field
from neuraldbg.explain.finding import Tier
from neuraldbg.explain.verdict.shipped_numbers import parsed, text_of

FILE = "calibration.json"
SCHEMA = "neuraldbg.calibration/1"
_TIERS = frozenset(tier.name.lower() for tier in Tier)


class Calibration(CheckedValues):
    """The fitted numbers of ``calibration.json``, validated when they are read."""

    about: dict[str, str]
    """A description of each entry."""
    provenance: dict[str, object]
    """Date, command, programs and seeds with which the numbers were fitted."""
    slope: float = Field(gt=0)
    """Log-odds per unit of evidence: positive, so that more evidence never means less confidence."""
    most: float = Field(gt=0)
    """Largest evidence that counts; more adds nothing."""
    prior: dict[str, float]
    """Log-odds of each tier before any evidence."""
    offset: dict[str, float]
    """Log-odds by which a cause that was seen in fitting differs from its tier."""
    cap: dict[str, float]
    """Largest probability of each tier: what the number of its samples supports."""

    @classmethod
    def completed(cls, name: str, value: Any) -> Any:
        """Check that each tier has its number, and that no cap is certainty."""
        if name in ("prior", "cap") and set(value) != _TIERS:
            message = f"needs exactly {', '.join(sorted(_TIERS))}"
            raise ValueError(message)
        if name == "cap" and not all(0.5 <= cap < 1 for cap in value.values()):
            message = "a cap lies between 0.5 and 1"
            raise ValueError(message)
        return value

    def log_odds(self, tier: Tier, cause: str, evidence: float, taken: float = 0.0) -> float:
        """Return the log-odds for evidence of which another cause explains ``taken``; not capped."""
        score = min(self.most, evidence) - taken
        return self.slope * score + self.prior[tier.name.lower()] + self.offset.get(cause, 0.0)

    def probability(self, tier: Tier, log_odds: float) -> float:
        """Return the probability that belongs to log-odds, at most the tier's cap."""
        return min(self.cap[tier.name.lower()], sigmoid(log_odds))


def sigmoid(log_odds: float) -> float:
    """Return the probability that belongs to log-odds."""
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, log_odds))))


def parse(text: str) -> Calibration:
    """Parse a calibration; a damaged one raises ConfigError."""
    return parsed(Calibration, text, FILE, SCHEMA)


@functools.cache
def fitted() -> Calibration:
    """Return the calibration that came with the package."""
    return parse(text_of(FILE))
