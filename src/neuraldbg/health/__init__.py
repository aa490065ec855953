"""The health stage: a RunRecord and its Diagnosis enter, a Health leaves (``nouns/training_health.py``). No torch.

It reads the numbers of the steps alone, so that a run recorded by hand is judged like any other. Faults are taken from
the diagnosis and the events; nothing is detected here a second time.

- ``curve_readings.py``: one curve as levels, windows and blocks
- ``convergence.py``: where it goes, how fast, since when it keeps its level
- ``extrapolation.py``: the level that it reaches if nothing changes
- ``loss_stability.py``: its noise and spikes
- ``learning_efficiency.py``: what a step gains
- ``generalisation.py``: evaluation against training
- ``run_anomalies.py``: what is odd in the numbers
- ``parameter_efficiency.py``: parameters against data
- ``findings.py``: what is wrong, aspect by aspect
- ``health_score.py``: the points that it takes, in two tables
- ``advice.py``: what to do
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.health.advice import recommendations_of
from neuraldbg.health.convergence import course_of, fell, plateau_of, rate_of
from neuraldbg.health.curve_readings import Curve, curve_of
from neuraldbg.health.extrapolation import expected_end
from neuraldbg.health.findings import findings_of, unjudged_of
from neuraldbg.health.generalisation import gap_of
from neuraldbg.health.health_score import deductions_of, listed, score_of
from neuraldbg.health.learning_efficiency import efficiency_of
from neuraldbg.health.loss_stability import stability_of
from neuraldbg.health.parameter_efficiency import architecture_of, parameters_of, samples_seen
from neuraldbg.health.run_anomalies import anomalies_of
from neuraldbg.nouns.loss_names import loss_names
from neuraldbg.nouns.step import ends_of
from neuraldbg.nouns.training_dynamics import CurveDynamics, TrainingDynamics
from neuraldbg.nouns.training_health import Health

if TYPE_CHECKING:
    from neuraldbg.nouns import Diagnosis, RunRecord, Series
    from neuraldbg.nouns.training_health import ArchitectureAnalysis

METRIC = "metric/"
"""Beginning of the name of a scalar that is a metric of the program's own."""
METRICS = 32
"""Largest number of metrics that are judged."""

__all__ = ["analyze_architecture", "assess", "curve_dynamics", "training_dynamics"]


def assess(run: RunRecord, diagnosis: Diagnosis) -> Health:
    """Return the health of a run. What the record lacks raises nothing: ``unjudged`` names it."""
    dynamics = training_dynamics(run)
    parameters = parameters_of(run, dynamics.gap)
    unjudged = unjudged_of(run, dynamics)
    health = Health(
        None,
        f"not enough data: {diagnosis.summary}",
        diagnosis.verdict,
        unjudged=listed(unjudged),
        dynamics=dynamics,
        parameters=parameters,
        recommendations=recommendations_of(diagnosis, dynamics, parameters),
    )
    # Without a verdict and without a trend nothing is known of the training: no score is better than a guess.
    if not run.steps or (diagnosis.verdict == "inconclusive" and "convergence" in unjudged):
        return health
    deductions = deductions_of(findings_of(run, diagnosis, dynamics), unjudged)
    said = f"{deductions[0].what} (-{deductions[0].points:.0f})" if deductions else "nothing takes points"
    return replace(health, score=score_of(deductions), reason=said, deductions=deductions)


def analyze_architecture(run: RunRecord) -> ArchitectureAnalysis:
    """Return the structure of the model and its parameters against the data."""
    return architecture_of(run, training_dynamics(run).gap)


def training_dynamics(run: RunRecord) -> TrainingDynamics:
    """Return the course of a training: its losses, evaluations and metrics, efficiency, gap and anomalies."""
    with np.errstate(all="ignore"):
        names = {stream: name for stream, name in loss_names(run).items() if len(run.scalar("loss", stream))}
        curves = {stream: curve_of(run.scalar("loss", stream)) for stream in names}
        losses = tuple(
            _judged(name, curves[stream], spikes_of(run, stream if len(names) > 1 else None))
            for stream, name in names.items()
        )
        evaluation = curve_of(run.scalar("eval_loss"))
        # Efficiency and gap belong to one loss: several are not one sum.
        alone = next(iter(curves.values())) if len(curves) == 1 else None
        efficiency = efficiency_of(alone, samples_seen(run)) if alone is not None else None
        gap = gap_of(alone, evaluation) if alone is not None and len(alone) and len(evaluation) else None
        told = len(evaluation) or evaluation.lost
        return TrainingDynamics(
            losses,
            _judged("eval_loss", evaluation, ()) if told else None,
            tuple(_metrics(run)),
            efficiency,
            gap,
            anomalies_of(run),
        )


def _metrics(run: RunRecord) -> list[CurveDynamics]:
    known = run.history.scalars
    ends = {end for name in known for end in ends_of(name)}  # the extremes of thinned rows are no metrics
    names = sorted(name for name in known if name.startswith(METRIC) and name not in ends)
    found = ((name, run.scalar(name)) for name in names[:METRICS])
    return [_judged(name.removeprefix(METRIC), curve_of(one), (), loss=False) for name, one in found if len(one)]


def spikes_of(run: RunRecord, stream: int | None) -> tuple[int, ...]:
    """Return the first steps of the spikes of a loss, of one optimizer or of all."""
    return tuple(
        event.first_step
        for event in run.events_of("loss_spike")
        if event.sure and (stream is None or event.details.get("stream", stream) == stream)
    )


def curve_dynamics(name: str, series: Series, *, loss: bool = True) -> CurveDynamics:
    """Return where one series goes. Values that are NaN or infinite are left out, and count where they end it.

    ``loss`` is False for a metric, which may rise by any factor without having diverged.
    """
    with np.errstate(all="ignore"):
        return _judged(name, curve_of(series), (), loss=loss)


def _judged(name: str, curve: Curve, spikes: tuple[int, ...], *, loss: bool = True) -> CurveDynamics:
    course = course_of(curve, loss=loss)
    if not len(curve):
        nan = float("nan")
        return CurveDynamics(
            name, 0, course.state, course.reason, nan, nan, nan, None, None,
            ends_nonfinite=curve.ends_nonfinite, no_expectation="no finite value",
        )  # fmt: skip
    plateau = plateau_of(curve, course)
    expected, why = expected_end(curve, course.state, plateau)
    lowest, lowest_step = curve.lowest
    return CurveDynamics(
        name,
        len(curve),
        course.state,
        course.reason,
        curve.initial,
        curve.last,
        lowest,
        lowest_step,
        fell(curve),
        curve.ends_nonfinite,
        rate_of(curve, course),
        plateau,
        expected,
        why,
        stability_of(curve, spikes),
    )
