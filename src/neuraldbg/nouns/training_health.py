"""The health of a run: a score that is explained, the course of the training, its parameters, and advice."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neuraldbg.nouns.html import div, listed, safe, shown
from neuraldbg.nouns.json import jsonable
from neuraldbg.nouns.measures import count
from neuraldbg.nouns.training_dynamics import Anomaly, TrainingDynamics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns.diagnosis import Unjudged

HEALTH_SCHEMA = "neuraldbg.health/1"


@dataclass(frozen=True)
class Deduction:
    """One thing that took points from the score.

    >>> first = dbg.health().deductions[0]
    >>> print(first.aspect, first.points > 50)
    diagnosis True
    """

    aspect: str
    """The aspect that it belongs to: ``diagnosis``, ``numbers``, ``convergence``, ``stability``, ``gradients``,
    ``generalisation`` or ``resources``."""
    points: float
    """Points taken, of 100."""
    what: str
    """What was found, as a sentence without its full stop."""
    evidence: str
    """Where it was read: ``diagnosis``, ``event gradient_spike``, ``loss``."""

    def __str__(self) -> str:
        return f"-{self.points:.0f} {self.aspect}: {self.what} [{self.evidence}]"


@dataclass(frozen=True)
class Recommendation:
    """One piece of advice, with its reason.

    >>> print(dbg.health().recommendations[0].source)
    cause missing_zero_grad
    """

    text: str
    """What to do."""
    reason: str
    """Why, with the measured numbers."""
    source: str
    """Where it comes from: ``cause lr_too_high``, or the part of the dynamics."""

    def __str__(self) -> str:
        return f"{self.text.rstrip('.')}: {self.reason} [{self.source}]"


@dataclass(frozen=True)
class LayerParameters:
    """The parameters of one layer.

    >>> dbg.health().parameters.layers[0].path
    '0'
    """

    path: str
    """Path of the layer."""
    parameters: int
    """Number of its own parameters."""
    share: float
    """Share of all parameters."""


@dataclass(frozen=True)
class ParameterEfficiency:
    """The parameters of a model against the data that it was trained on.

    >>> parameters = dbg.health().parameters
    >>> print(parameters.parameters, parameters.samples_seen)
    641 1280
    """

    parameters: int | None = None
    """Number of parameters. None if unknown."""
    samples_seen: int | None = None
    """Samples of all steps, repeated ones again. None if batch sizes were not recorded."""
    distinct_samples: int | None = None
    """Different samples among them. None if unknown."""
    untrained: int = 0
    """Named parameters (tensors) that training never reaches."""
    layers: tuple[LayerParameters, ...] = ()
    """The layers with the most parameters, at most 12."""
    judged: bool = False
    """True if something sound can be said about their number."""
    text: str = ""
    """The judgement, or why none can be made."""
    source: str = ""
    """The rule behind the judgement; "" if none was used."""

    def __str__(self) -> str:
        told = []
        if self.parameters is not None:
            told.append(f"{count(self.parameters)} parameters")
        if self.samples_seen is not None:
            told.append(f"{count(self.samples_seen)} samples seen")
        if self.distinct_samples is not None:
            told.append(f"{count(self.distinct_samples)} of them different")
        source = f" [{self.source}]" if self.source else ""
        return f"{', '.join(told) or 'nothing is known of the parameters'}. {self.text}{source}"


@dataclass(frozen=True)
class ArchitectureAnalysis:
    """The structure of a model and what can be said of it."""

    total_parameters: int | None
    """Number of parameters. None if unknown."""
    trainable_parameters: int | None
    """Number of parameters that training changes. None if unknown."""
    model_size_mb: float | None
    """Megabytes (10**6 bytes) of the parameters. None if unknown."""
    layer_count: int | None
    """Number of layers with parameters. None if unknown."""
    layer_types: Mapping[str, int]
    """Number of layers by type; empty if unknown."""
    efficiency: ParameterEfficiency
    """Parameters against data."""
    notes: tuple[str, ...] = ()
    """What stands out, a sentence each, without its full stop."""

    def __str__(self) -> str:
        if self.total_parameters is None:
            return f"not enough data: neither was an architecture recorded nor were parameters read. {self.efficiency}"
        told = [f"{count(self.total_parameters)} parameters"]
        if self.trainable_parameters is not None:
            told.append(f"{count(self.trainable_parameters)} of them trained")
        if self.model_size_mb is not None:
            told.append(f"{self.model_size_mb:.3g} MB")
        if self.layer_count is not None:
            told.append(f"{self.layer_count:,} layers with parameters")
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.layer_types.items())
        return "\n".join([", ".join(told) + (f" ({kinds})" if kinds else ""), *self.notes, str(self.efficiency)])


@dataclass(frozen=True)
class Health:
    """The health of a run. ``score`` is 100 minus the points of all deductions.

    The aspects have weights (``neuraldbg/health/health_score.py``). One that could not be judged has none: it is
    listed, and the others are counted as the whole, so that it neither helps nor harms.

    >>> health = run.health()
    >>> print(health.verdict, health.score < 50)
    failing True
    >>> health == dbg.health()
    True
    """

    score: float | None
    """Score from 0 to 100, a whole number. None if too little is known: ``reason`` says why."""
    reason: str
    """The score in words, or why there is none."""
    verdict: str
    """Verdict of the diagnosis: ``healthy``, ``inconclusive``, ``suspect`` or ``failing``."""
    deductions: tuple[Deduction, ...] = ()
    """What took points, most first."""
    unjudged: tuple[Unjudged, ...] = ()
    """Aspects that could not be judged, each with the reason."""
    dynamics: TrainingDynamics = field(default_factory=TrainingDynamics)
    """The course of the training."""
    parameters: ParameterEfficiency = field(default_factory=ParameterEfficiency)
    """Parameters against data."""
    recommendations: tuple[Recommendation, ...] = ()
    """Advice, the most important first."""

    @property
    def anomalies(self) -> tuple[Anomaly, ...]:
        """Odd things in the numbers, by first step.

        >>> run.health().anomalies == run.health().dynamics.anomalies
        True
        """
        return self.dynamics.anomalies

    def __repr__(self) -> str:
        return f"<Health: {self._headline()}>"

    def _headline(self) -> str:
        return f"{'not scored' if self.score is None else f'{self.score:.0f}/100'}, {self.verdict}: {self.reason}"

    def __str__(self) -> str:
        lines = [f"health {self._headline()}", *(f"  {one}" for one in self.deductions)]
        lines += [f"  not judged: {one.what}: {one.reason}" for one in self.unjudged]
        lines += ["", str(self.dynamics), f"parameters: {self.parameters}"]
        lines += [f"recommended: {one}" for one in self.recommendations]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the health as strict JSON values (schema ``neuraldbg.health/1``).

        >>> run.health().to_dict()["schema"]
        'neuraldbg.health/1'
        """
        plain = jsonable(self)
        assert isinstance(plain, dict)
        return {"schema": HEALTH_SCHEMA, **plain}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the health as strict JSON text. None for ``indent`` gives one line.

        >>> print(run.health().to_json(indent=None)[:33])
        {"schema": "neuraldbg.health/1",
        """
        return json.JSONEncoder(indent=indent, allow_nan=False).encode(self.to_dict())

    @shown
    def _repr_html_(self) -> str:
        """Render score, deductions, what was not judged and advice as HTML for a notebook."""
        parts = [f"<b>Health {safe(self._headline())}</b>", listed(safe(one) for one in self.deductions)]
        parts.append(listed(safe(f"not judged: {one.what}: {one.reason}") for one in self.unjudged))
        parts.append(listed(safe(one) for one in self.recommendations))
        return div("".join(parts))
