"""The advice for a run: diagnosis, dynamics and parameters enter, Recommendations leave, most important first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns.html import number_text
from neuraldbg.nouns.training_dynamics import FALLING, LEVELLED, OSCILLATING
from neuraldbg.nouns.training_health import ParameterEfficiency, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.nouns import Diagnosis
    from neuraldbg.nouns.training_dynamics import TrainingDynamics

LIKELY = 0.5
"""Confidence from which the remedy of a cause is advised."""


def recommendations_of(
    diagnosis: Diagnosis, dynamics: TrainingDynamics, parameters: ParameterEfficiency
) -> tuple[Recommendation, ...]:
    """Return the remedies of the causes, then what follows from the dynamics: a fault comes before fine tuning."""
    found = [
        Recommendation(one.remedy.text, f"{one.sentence} ({one.confidence:.0%} sure)", f"cause {one.cause}")
        for one in diagnosis.hypotheses
        if one.confidence >= LIKELY and one.remedy.text
    ]
    # To train longer, or to stop, is no advice for a run with a fault.
    if diagnosis.verdict in ("healthy", "inconclusive"):
        found += _loss(dynamics)
    found += _beside(dynamics)
    if parameters.untrained:
        several = f"{parameters.untrained} parameter{'' if parameters.untrained == 1 else 's'}"
        found.append(Recommendation("Train or freeze them", f"{several} never change", "parameters"))
    return tuple(found)


def _loss(dynamics: TrainingDynamics) -> Iterator[Recommendation]:
    if len(dynamics.losses) != 1:
        return
    loss, gap = dynamics.losses[0], dynamics.gap
    overfits = gap is not None and gap.overfits
    gains = dynamics.efficiency is None or dynamics.efficiency.last > 0.005 * dynamics.efficiency.first
    if loss.state == FALLING and gains and not overfits:
        end = (
            f"; {number_text(loss.expected.value)} is expected at step {loss.expected.at_step:,}"
            if loss.expected
            else ""
        )
        yield Recommendation("Train longer", f"the loss {loss.rate}{end}", "convergence")
    elif loss.state == LEVELLED and loss.fell and loss.plateau is not None:
        text = "Stop here, or lower the learning rate to see whether it falls further"
        yield Recommendation(text, f"the loss keeps its {loss.plateau}", "convergence")
    elif loss.state == OSCILLATING:
        yield Recommendation("Lower the learning rate, or the momentum", f"of the loss {loss.reason}", "convergence")
    if loss.stability.word == "very noisy":
        text = "Use larger batches, or accumulate gradients"
        yield Recommendation(text, f"the loss is {loss.stability}", "stability")


def _beside(dynamics: TrainingDynamics) -> Iterator[Recommendation]:
    gap = dynamics.gap
    if gap is not None and gap.overfits:
        text = f"Stop at the best evaluation (step {gap.best_step:,}), regularise, or use more data"
        yield Recommendation(text, f"the gap is {gap}", "generalisation")
    advice = {
        "throughput_falls": "Find what slows down with neuraldbg run --profile",
        "memory_grows": "Find what is kept with neuraldbg run --profile",
    }
    for anomaly in dynamics.anomalies:
        if anomaly.kind in advice:
            yield Recommendation(advice[anomaly.kind], anomaly.text, "resources")
