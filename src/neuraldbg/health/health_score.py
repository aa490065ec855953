"""The health score: what was found in each aspect of a run enters, points and their reasons leave.

Each aspect has a weight, and each finding takes a part of it. The weights and the findings stand in two tables here.
An aspect that could not be judged is left out and named; the weights of the others are scaled to 100. A finding never
gives points, and a worse one takes at least as many, so that a worse run never scores higher.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.nouns.diagnosis import Unjudged
from neuraldbg.nouns.training_health import Deduction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WEIGHTS: dict[str, float] = {
    "diagnosis": 60,
    "convergence": 12,
    "numbers": 8,
    "stability": 6,
    "gradients": 6,
    "generalisation": 5,
    "resources": 3,
}
"""Weight of each aspect, of 100. Source: our own choice, by what each is worth as evidence.

- ``diagnosis`` is more than half: its verdicts are tested on hundreds of trainings with known faults
  (docs/accuracy.md), and no good number beside it may lift a failing run above 50.
- ``convergence``: to learn is what a training is for.
- ``numbers``: NaN and infinity end it; mostly the diagnosis has said so already.
- ``stability`` and ``gradients`` are symptoms, and healthy trainings have some of them.
- ``generalisation`` is about the model more than about the training.
- ``resources`` harm the machine, not the model.
"""
POINTS: dict[str, tuple[str, float, float]] = {
    "failing": ("diagnosis", 50, 60),
    "suspect": ("diagnosis", 15, 30),
    "inconclusive": ("diagnosis", 15, 15),
    "diverged": ("convergence", 12, 12),
    "rising": ("convergence", 3, 8),
    "never_fell": ("convergence", 8, 8),
    "oscillating": ("convergence", 5, 5),
    "ends_nonfinite": ("numbers", 8, 8),
    "nonfinite": ("numbers", 3, 6),
    "spikes": ("stability", 0.5, 4),
    "very_noisy": ("stability", 2, 2),
    "noise_grows": ("stability", 1, 1),
    "gradient_event": ("gradients", 3, 6),
    "overfits": ("generalisation", 5, 5),
    "gap_grows": ("generalisation", 1, 1),
    "throughput_falls": ("resources", 1, 2),
    "memory_grows": ("resources", 1, 3),
}
"""Aspect of each finding, and the points that the mildest and the worst of its kind take. Of ``failing`` and
``suspect`` the severity is the confidence of the first cause: a cause that is not sure may not be one. Source: our
own choice."""


@dataclass(frozen=True)
class Finding:
    """One finding that takes points."""

    kind: str
    """A key of POINTS."""
    severity: float
    """Place from the mildest, 0, to the worst, 1."""
    what: str
    """The finding, as a sentence without its full stop."""
    evidence: str
    """Where it was read."""


def deductions_of(findings: Sequence[Finding], unjudged: Mapping[str, str]) -> tuple[Deduction, ...]:
    """Return the points that findings take, most first. ``unjudged`` has the reason for each aspect that could not be
    judged. No aspect loses more than its weight: its findings share it, the worst first.
    """
    scale = 100.0 / sum(weight for aspect, weight in WEIGHTS.items() if aspect not in unjudged)
    left = dict(WEIGHTS)
    found = []
    for finding in sorted(findings, key=lambda one: -points_of(one)):
        aspect = POINTS[finding.kind][0]
        if aspect in unjudged:
            continue
        taken = min(points_of(finding), left[aspect])
        left[aspect] -= taken
        if taken > 0:
            found.append(Deduction(aspect, taken * scale, finding.what, finding.evidence))
    return tuple(found)


def points_of(finding: Finding) -> float:
    """Return the points of a finding before aspects that were not judged are left out."""
    _, low, high = POINTS[finding.kind]
    return low + (high - low) * min(max(finding.severity, 0.0), 1.0)


def score_of(deductions: Sequence[Deduction]) -> float:
    """Return 100 minus all points, rounded to a whole number."""
    return float(max(round(100.0 - sum(one.points for one in deductions)), 0))


def listed(unjudged: Mapping[str, str]) -> tuple[Unjudged, ...]:
    """Return the aspects that were not judged, in the order of their weights."""
    return tuple(Unjudged(aspect, unjudged[aspect]) for aspect in WEIGHTS if aspect in unjudged)
