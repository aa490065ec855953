"""From weighed findings to ranked hypotheses: priors, explaining-away, confidence.

Confidence is the sigmoid of prior + evidence - discount, all in log-odds. The priors and the weights in the causes
are plain numbers set by reasoning about what each measurement excludes. They are not yet calibrated: fitting them on
a corpus of known faults, and checking the result with a reliability table, is the next issue. Until then a confidence
is a consistent ranking, capped below certainty, and not a measured frequency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import Tier
from neuraldbg.nouns import Evidence, Hypothesis

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.explain.case import Case
    from neuraldbg.explain.cause import Cause
    from neuraldbg.explain.finding import Finding

PRIOR = {Tier.CERTAIN: -2.5, Tier.SPECIFIC: -3.0, Tier.STATISTICAL: -3.0, Tier.PALLIATIVE: -2.0}
"""Log-odds before any evidence. Learning rates are the most frequent single cause in surveys of faults, hence -2."""
DISCOUNT = {1: 2.0, 2: 3.0, 3: 4.0}
"""Log-odds taken from a cause whose consequences one of a tier this much higher explains in full."""
MOST = 0.75
"""Share of a palliative's symptoms that a specific cause must explain to stand before it."""
BEHIND = 1.0
"""Log-odds by which a palliative then stays behind the specific cause, untested as both are."""
FLOOR = 0.15
"""Hypotheses below this confidence are not shown."""
CREDIBLE = 0.5
"""From this confidence on a hypothesis is named in the verdict and explains others away."""
CAP = 4.6
"""Log-odds are cut here (0.99): an uncalibrated number must not claim certainty."""


def sigmoid(log_odds: float) -> float:
    """Return the probability that belongs to log-odds."""
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, log_odds))))


@dataclass(frozen=True)
class _Weighed:
    cause: Cause
    finding: Finding
    discounts: tuple[Evidence, ...] = ()

    @property
    def tier(self) -> Tier:
        return self.cause.tier if self.finding.tier is None else self.finding.tier

    @property
    def log_odds(self) -> float:
        taken = sum(item.weight for item in self.discounts)
        return min(CAP, PRIOR[self.cause.tier] + self.finding.log_odds) - taken

    @property
    def confidence(self) -> float:
        return sigmoid(self.log_odds)


def rank(case: Case, findings: Iterable[tuple[Cause, Finding]]) -> tuple[Hypothesis, ...]:
    """Return the credible hypotheses, most likely first. Independent causes stand beside each other."""
    weighed: list[_Weighed] = []
    for cause, finding in sorted(findings, key=lambda pair: (-_tier(*pair), -pair[1].log_odds, pair[0].id)):
        weighed.append(_explained_away(case, _Weighed(cause, finding), weighed))
    weighed.sort(key=lambda w: (-round(w.confidence, 6), -w.tier, w.finding.step or 0, w.cause.id))
    shown = [w for w in weighed if w.confidence >= FLOOR]
    return tuple(_hypothesis(w, rank) for rank, w in enumerate(shown, start=1))


def _tier(cause: Cause, finding: Finding) -> Tier:
    return _Weighed(cause, finding).tier


def _explained_away(case: Case, lower: _Weighed, others: list[_Weighed]) -> _Weighed:
    """Discount a cause by the one higher cause that explains most of what supports it."""
    rests_on = lower.cause.explains & case.kinds
    best: Evidence | None = None
    for higher in others:
        distance = int(higher.tier) - int(lower.tier)
        if distance < 1 or higher.confidence < CREDIBLE:
            continue
        # A palliative has always been there; what counts is whether the specific cause was there when trouble began.
        came_first = lower.tier is Tier.PALLIATIVE and _at_onset(case, higher)
        if not (came_first or _no_later(higher, lower)):
            continue
        covered = len(rests_on & higher.cause.explains) / len(rests_on) if rests_on else 0.0
        weight = DISCOUNT[distance] * covered * higher.confidence
        if lower.tier is Tier.PALLIATIVE and covered >= MOST:
            # A palliative softens whatever the specific cause does, so its own evidence is that cause's consequence.
            weight = max(weight, lower.log_odds - higher.log_odds + BEHIND)
        if weight > (best.weight if best else 0.0):
            since = f", at work since step {higher.finding.step}" if higher.finding.step is not None else ""
            best = Evidence(
                f"{higher.cause.id} explains the same symptoms and is shown more directly{since}",
                False, weight,
            )  # fmt: skip
    return replace(lower, discounts=(best,)) if best else lower


def _at_onset(case: Case, higher: _Weighed) -> bool:
    return higher.finding.step is not None and case.onset is not None and higher.finding.step <= case.onset + 1


def _no_later(higher: _Weighed, lower: _Weighed) -> bool:
    """Whether the higher cause was at work no later than the lower one; unknown times do not speak against it."""
    if higher.finding.step is None or lower.finding.step is None:
        return True
    return higher.finding.step <= lower.finding.step + 1  # effects of step 0 are first seen at step 1


def _hypothesis(weighed: _Weighed, rank: int) -> Hypothesis:
    finding, cause = weighed.finding, weighed.cause
    evidence = sorted((*finding.evidence, *weighed.discounts), key=lambda e: (not e.supports, -e.weight))
    return Hypothesis(
        cause=cause.id,
        category=cause.category,
        confidence=round(weighed.confidence, 4),
        sentence=finding.sentence,
        layer=finding.layer,
        step=finding.step,
        evidence=tuple(evidence),
        equivalent=finding.equivalent,
        remedy=finding.remedy,
        rank=rank,
        failure=finding.failure,
        explains=tuple(sorted(cause.explains)),
    )
