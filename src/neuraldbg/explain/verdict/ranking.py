"""The ranking of hypotheses: findings enter, explaining-away reduces their evidence, and hypotheses leave.

Confidence is the probability that a hypothesis is a true cause of this run. ``calibration`` maps evidence to it with
numbers fitted on a corpus of known faults. This file decides how much evidence a cause keeps when another cause
explains the same symptoms; its rules are about order and tier, and are not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import NONFINITE
from neuraldbg.explain.finding import Tier
from neuraldbg.explain.verdict.calibration import fitted, sigmoid
from neuraldbg.nouns import CodeLine, Evidence, Hypothesis

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from neuraldbg.explain.cause import Cause
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding

DISCOUNT = {1: 2.0, 2: 3.0, 3: 4.0}
"""Evidence that a cause loses where one of a tier higher by this distance explains all its symptoms."""
MOST = 0.75
"""Share of a palliative's symptoms that a higher cause must explain to be ranked before it."""
BEHIND = 1.0
"""Log-odds by which the palliative is then ranked behind the higher cause, since neither was tested."""
FLOOR = 0.15
"""Hypotheses below this confidence are not shown."""
CREDIBLE = 0.5
"""Confidence from which a hypothesis is named in the verdict and explains others away."""

__all__ = ["CREDIBLE", "FLOOR", "Weighed", "ends_so", "rank", "sigmoid", "weigh"]


@dataclass(frozen=True)
class Weighed:
    """A finding with the part of its evidence that another cause explains."""

    cause: Cause
    finding: Finding
    discounts: tuple[Evidence, ...] = ()

    @property
    def tier(self) -> Tier:
        """The finding's tier, else the cause's; a higher tier explains a lower one away."""
        return self.cause.tier if self.finding.tier is None else self.finding.tier

    @property
    def explains(self) -> frozenset[str]:
        """Kinds of events that the cause explains in this run: the finding's own beside the cause's."""
        return self.cause.explains | self.finding.explains

    @property
    def taken(self) -> float:
        """The evidence that another cause explains, in the units of the judges' weights."""
        return sum(item.weight for item in self.discounts)

    @property
    def log_odds(self) -> float:
        """Calibrated log-odds, before the cap."""
        return fitted().log_odds(self.cause.tier, self.cause.id, self.finding.log_odds, self.taken)

    @property
    def confidence(self) -> float:
        """The probability that this is a true cause of the run."""
        return fitted().probability(self.cause.tier, self.log_odds)


def weigh(case: Case, findings: Iterable[tuple[Cause, Finding]]) -> tuple[Weighed, ...]:
    """Weigh every finding against the others. Return them with their discounts, most likely first."""
    weighed: list[Weighed] = []
    for cause, finding in sorted(findings, key=lambda pair: (-_tier(*pair), -pair[1].log_odds, pair[0].id)):
        weighed.append(_explained_away(case, _too_late(case, Weighed(cause, finding)), weighed))
    weighed = [_stood_back(one, weighed) for one in weighed]
    weighed = [_led_to(one, weighed) for one in weighed]
    # Where two are at their caps, the one with more evidence comes first.
    weighed.sort(key=lambda w: (-round(w.confidence, 6), -w.tier, -w.log_odds, w.finding.step or 0, w.cause.id))
    return tuple(weighed)


def rank(case: Case, findings: Iterable[tuple[Cause, Finding]]) -> tuple[Hypothesis, ...]:
    """Return the hypotheses of at least FLOOR confidence, the credible ones first. Independent causes are all kept.

    For a run that broke, those that can end a run in this way come first: another fact about the program (a layer that
    is never used) may be surer, but is not the reason.
    """
    shown = [w for w in weigh(case, findings) if w.confidence >= FLOOR]
    shown.sort(key=lambda w: w.confidence >= CREDIBLE and not ends_so(case, w.explains))
    shown.sort(key=lambda w: w.confidence >= CREDIBLE and w.cause.apart)
    shown.sort(key=lambda w: w.confidence < CREDIBLE)
    return tuple(_hypothesis(w, rank) for rank, w in enumerate(shown, start=1))


def ends_so(case: Case, explains: Collection[str]) -> bool:
    """Return True if a cause of these events can end a run as this one ended; always for a run that did not break."""
    if not case.trouble.broke:
        return True
    ends = NONFINITE if case.trouble.kind == "nonfinite" else NONFINITE | {"loss_divergence"}
    return not ends.isdisjoint(explains)


def _places(finding: Finding) -> tuple[CodeLine, ...]:
    at = finding.at
    return (CodeLine(at.file, at.number, at.text.strip(), finding.doing),) if at is not None else ()


def _tier(cause: Cause, finding: Finding) -> Tier:
    return Weighed(cause, finding).tier


def _explained_away(case: Case, lower: Weighed, others: list[Weighed]) -> Weighed:
    """Discount a cause by the one higher cause that explains most of its evidence."""
    # Only a credible cause of a higher tier that was at work in time can explain the lower one.
    rests_on = lower.explains & case.kinds
    best: Evidence | None = None
    for higher in others:
        distance = int(higher.tier) - int(lower.tier)
        if distance < 1 or higher.confidence < CREDIBLE:
            continue
        # A palliative has always been there; it matters only if the higher cause was at work at the onset.
        came_first = lower.tier is Tier.PALLIATIVE and _at_onset(case, higher)
        if not (came_first or _no_later(higher, lower)):
            continue
        # The discount grows with the tiers between them, the symptoms covered and the higher cause's confidence.
        covered = len(rests_on & higher.explains) / len(rests_on) if rests_on else 0.0
        weight = DISCOUNT[distance] * covered * higher.confidence
        if lower.tier is Tier.PALLIATIVE and covered >= MOST:
            # A palliative softens the effects of any specific cause, so its own evidence is that cause's consequence.
            weight = max(weight, (lower.log_odds - higher.log_odds + BEHIND) / fitted().slope)
        if weight > (best.weight if best else 0.0):
            since = f", since step {higher.finding.step}" if higher.finding.step is not None else ""
            best = Evidence(
                f"{higher.cause.id} explains the same symptoms and is shown more directly{since}",
                False, weight,
            )  # fmt: skip
    return replace(lower, discounts=(*lower.discounts, best)) if best else lower


def _too_late(case: Case, one: Weighed) -> Weighed:
    """Lower a cause to just below credible if it was first at work after the trouble had begun, in a run that broke.

    A fault of the program has been there before it was read, and so may others be where nothing was read in between.
    """
    step, onset = one.finding.step, case.onset
    if one.tier is Tier.CERTAIN or step is None or onset is None or not case.trouble.broke:
        return one
    if step <= onset + 1 or not case.read_within(onset, step) or one.confidence < CREDIBLE:
        return one
    weight = (one.log_odds + BEHIND) / fitted().slope
    return replace(one, discounts=(Evidence(f"the trouble began before, at step {onset}", False, weight),))


def _stood_back(one: Weighed, others: list[Weighed]) -> Weighed:
    """Lower a cause to just below credible where a credible one entails it: it is true of the run, not the reason."""
    entailing = [w for w in others if one.cause.id in w.cause.entails and w.cause.id not in one.cause.entails]
    best = max((w for w in entailing if w.confidence >= CREDIBLE), key=lambda w: w.log_odds, default=None)
    if best is None or one.confidence < CREDIBLE:
        return one
    weight = (one.log_odds + BEHIND) / fitted().slope
    item = Evidence(f"{best.cause.id} was found, and this follows from it", False, weight)
    return replace(one, discounts=(*one.discounts, item))


def _led_to(one: Weighed, others: list[Weighed]) -> Weighed:
    """Rank a cause behind a credible fault of the program which can lead to it and was at work no later. Both are kept:
    the one says what went wrong, the other is to be mended.
    """
    leading = [w for w in others if w.cause.id in one.cause.effect_of and w.confidence >= CREDIBLE]
    best = max((w for w in leading if _no_later(w, one)), key=lambda w: w.log_odds, default=None)
    if best is None or one.log_odds < best.log_odds - BEHIND:
        return one
    weight = (one.log_odds - best.log_odds + BEHIND) / fitted().slope
    since = f" since step {best.finding.step}" if best.finding.step is not None else ""
    item = Evidence(f"{best.cause.id} is at work{since} and can lead to this: mend it first", False, weight)
    return replace(one, discounts=(*one.discounts, item))


def _at_onset(case: Case, higher: Weighed) -> bool:
    return higher.finding.step is not None and case.onset is not None and higher.finding.step <= case.onset + 1


def _no_later(higher: Weighed, lower: Weighed) -> bool:
    """Return True if the higher cause was at work no later than the lower one, or if a step is unknown."""
    if higher.finding.step is None or lower.finding.step is None:
        return True
    return higher.finding.step <= lower.finding.step + 1  # effects of step 0 are first seen at step 1


def _hypothesis(weighed: Weighed, rank: int) -> Hypothesis:
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
        explains=tuple(sorted(weighed.explains)),
        places=_places(finding),
        title=finding.title or cause.title,
        since=finding.since,
        ranks=finding.ranks,
    )
