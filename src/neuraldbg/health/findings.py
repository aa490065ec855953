"""The faults of a run, aspect by aspect: record, diagnosis and dynamics enter; Findings and gaps leave."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.health.health_score import Finding
from neuraldbg.nouns.html import number_text
from neuraldbg.nouns.training_dynamics import DIVERGED, FALLING, FEW_DATA, LEVELLED, OSCILLATING, RISING, UNCLEAR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.nouns import Diagnosis, Event, RunRecord
    from neuraldbg.nouns.training_dynamics import CurveDynamics, TrainingDynamics

GROWN_NOISE = 2.0
"""Factor by which the relative noise grows from one third to the next from which it is told. Source: our own choice."""
MANY = 10
"""Spikes that count as the worst."""


def findings_of(run: RunRecord, diagnosis: Diagnosis, dynamics: TrainingDynamics) -> list[Finding]:
    """Return all that takes points."""
    return [
        *_diagnosis(diagnosis),
        *(finding for curve in dynamics.losses for finding in _curve(curve, alone=len(dynamics.losses) == 1)),
        *_numbers(dynamics),
        *_gradients(run, diagnosis),
        *_generalisation(dynamics),
        *_resources(dynamics),
    ]


def unjudged_of(run: RunRecord, dynamics: TrainingDynamics) -> dict[str, str]:
    """Return the aspects that cannot be judged, with the reason for each."""
    found: dict[str, str] = {}
    if not dynamics.losses:
        found["convergence"] = found["stability"] = "no loss was recorded"
        if not dynamics.metrics and not run.history.read.any():
            found["numbers"] = "no numbers were recorded"
    elif dynamics.state == FEW_DATA:
        found["convergence"] = found["stability"] = dynamics.losses[0].reason
    elif len(dynamics.losses) > 1 and dynamics.state != DIVERGED:
        found["convergence"] = "losses of several optimizers need not fall: a rise of one is part of the game"
    rows = [*run.layout.rows("param_grad"), *run.layout.rows("output_grad")]
    if not rows or not run.history.read.any():
        found["gradients"] = "no gradients were recorded"
    if dynamics.gap is None or dynamics.gap.word == "not enough data":
        few = "no evaluations were recorded" if dynamics.gap is None else "fewer than 5 evaluations"
        found["generalisation"] = few
    if "duration" not in run.history.scalars and "resident" not in run.history.scalars:
        found["resources"] = "neither time nor memory was recorded"
    return found


def _diagnosis(diagnosis: Diagnosis) -> Iterator[Finding]:
    if diagnosis.verdict == "healthy":
        return
    sure = diagnosis.hypotheses[0].confidence if diagnosis.hypotheses else 0.0
    named = f" (first cause: {diagnosis.hypotheses[0].cause}, {sure:.0%} sure)" if diagnosis.hypotheses else ""
    yield Finding(diagnosis.verdict, sure, f"the verdict is {diagnosis.verdict}{named}", "diagnosis")


def _curve(curve: CurveDynamics, *, alone: bool) -> Iterator[Finding]:
    kinds = {DIVERGED: "diverged", RISING: "rising", OSCILLATING: "oscillating"}
    said = f"{curve.name} {'has' if curve.state == DIVERGED else 'is'} {curve.state}: {curve.reason}"
    if curve.state == DIVERGED or (alone and curve.state in kinds):
        yield Finding(kinds[curve.state], _lost(curve), said, curve.name)
    elif alone and curve.state in (LEVELLED, UNCLEAR) and curve.fell is False:
        level = number_text(curve.last)
        yield Finding(
            "never_fell", 1.0, f"{curve.name} never fell: from {number_text(curve.initial)} to {level}", curve.name
        )
    stability = curve.stability
    if stability.spikes:
        count = len(stability.spikes)
        what = f"{count} spike{'' if count == 1 else 's'} of {curve.name}, the first at step {stability.spikes[0]:,}"
        yield Finding("spikes", (count - 1) / (MANY - 1), what, "event loss_spike")
    if stability.word == "very noisy" and curve.state != FALLING:
        yield Finding("very_noisy", 1.0, f"{curve.name} is {stability}", curve.name)
    if stability.growth is not None and stability.growth > GROWN_NOISE and stability.word != "steady":
        what = f"the noise of {curve.name} grew by {stability.growth:.1f} times in the last third"
        yield Finding("noise_grows", 1.0, what, curve.name)


def _lost(curve: CurveDynamics) -> float:
    """Return the share of the fall that was lost again: 1 for a curve that ends above its start, or never fell."""
    fall = curve.initial - curve.lowest
    return min((curve.last - curve.lowest) / fall, 1.0) if fall > 0 and math.isfinite(fall) else 1.0


def _numbers(dynamics: TrainingDynamics) -> Iterator[Finding]:
    for curve in dynamics.losses:
        if curve.state == DIVERGED and curve.ends_nonfinite:
            yield Finding("ends_nonfinite", 1.0, f"{curve.name} ends NaN or infinite", curve.name)
    for anomaly in dynamics.anomalies:
        if anomaly.kind == "nonfinite":
            yield Finding("nonfinite", anomaly.severity, anomaly.text, "record")


def _gradients(run: RunRecord, diagnosis: Diagnosis) -> Iterator[Finding]:
    """Yield one finding for each kind of event of gradients that the diagnosis counts as a trouble: one that no cause
    explains, in a run that trains, is none. Where the verdict is open each sure one counts.
    """
    events: tuple[Event, ...] = diagnosis.effects
    if diagnosis.verdict == "inconclusive":
        events = tuple(event for event in run.events if event.sure)
    first: dict[str, Event] = {}
    for event in events:
        if event.transition == "gradient_health":
            first.setdefault(event.kind, event)
    for kind, event in first.items():
        yield Finding("gradient_event", event.confidence, str(event), f"event {kind}")


def _generalisation(dynamics: TrainingDynamics) -> Iterator[Finding]:
    gap = dynamics.gap
    if gap is not None and gap.overfits:
        yield Finding("overfits", 1.0, f"the gap between evaluation and training is {gap}", "eval_loss")
    elif gap is not None and gap.word == "growing" and gap.gap > 0:
        yield Finding("gap_grows", 1.0, f"the gap between evaluation and training is {gap}", "eval_loss")


def _resources(dynamics: TrainingDynamics) -> Iterator[Finding]:
    for anomaly in dynamics.anomalies:
        if anomaly.kind in ("throughput_falls", "memory_grows"):
            yield Finding(anomaly.kind, anomaly.severity, anomaly.text, "record")
