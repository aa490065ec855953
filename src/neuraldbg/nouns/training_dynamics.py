"""The course of a training: where each of its curves goes, how noisy it is, what it cost, and what is odd in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neuraldbg.nouns.html import number_text
from neuraldbg.nouns.json import jsonable
from neuraldbg.nouns.measures import percent

FALLING, LEVELLED, RISING = "falling", "levelled off", "rising"
OSCILLATING, DIVERGED, UNCLEAR, FEW_DATA = "oscillating", "diverged", "unclear", "not enough data"
STATES = (FALLING, LEVELLED, RISING, OSCILLATING, DIVERGED, UNCLEAR, FEW_DATA)
"""States of a curve at its end. ``unclear``: its own slow ups and downs hide where it goes."""


@dataclass(frozen=True)
class Rate:
    """The relative fall of a curve per step at its end, with its interval of 95% confidence; negative for a rise.

    >>> dbg.health().dynamics.losses[0].rate is None  # of a loss that is NaN at its end
    True
    """

    per_step: float
    """Fall per step, as a share of the level; 0.001 is a tenth of a percent per step."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    first_step: int
    """First step of the values that it was taken from; the last is the last of the curve."""
    of: str
    """What it is a share of: ``level`` for a positive curve, else ``range``, the distance of its extremes."""
    source: str = "Theil-Sen slope of the logarithms of block medians (Sen 1968)"
    """The estimator."""

    def __str__(self) -> str:
        since = f"since step {self.first_step:,}"
        if self.low < 0 < self.high or self.low == self.high == 0:
            span = f"a fall of {_per_cent(self.high)} and a rise of {_per_cent(-self.low)}"
            return f"between {span} of its {self.of} per step (95% interval, {since})"
        way, ends = ("falls", (self.low, self.high)) if self.per_step >= 0 else ("rises", (-self.high, -self.low))
        told = f"{way} by {_per_cent(abs(self.per_step))} of its {self.of} per step"
        return f"{told} (95% interval {_per_cent(ends[0])} to {_per_cent(ends[1])}, {since})"


@dataclass(frozen=True)
class Plateau:
    """The stretch at the end of a curve in which it keeps its level.

    >>> dbg.health().dynamics.losses[0].plateau is None
    True
    """

    since: int
    """First step of it."""
    level: float
    """Median of its values."""
    band: float
    """Distance from the level within which all medians of blocks stay."""
    p: float
    """Probability of the order in time of its blocks if there is none; above 0.02 no trend is seen."""
    test: str = "Kendall's test on block medians (Kendall 1975)"
    """The test that finds no trend in it."""

    def __str__(self) -> str:
        return f"level {number_text(self.level)} since step {self.since:,} ({self.test}: p {self.p:.2g})"


@dataclass(frozen=True)
class ExpectedEnd:
    """The level that a curve reaches after as many steps again, if nothing changes; with its interval of 95%.

    >>> dbg.health().dynamics.losses[0].expected is None
    True
    """

    at_step: int
    """Step for which it is told: twice the steps of the run so far."""
    value: float
    """Expected level, without the noise of a single step."""
    low: float
    """Lower end of the interval, over all forms and parameters that fit."""
    high: float
    """Upper end of the interval."""
    form: str
    """The form that fits best: ``exponential``, ``power law``, or ``level`` of a plateau that fits neither."""
    fitted_from: int
    """First step of the values that it was fitted to."""

    def __str__(self) -> str:
        interval = f"95% interval {number_text(self.low)} to {number_text(self.high)}"
        return f"{number_text(self.value)} at step {self.at_step:,} ({self.form}, {interval})"


@dataclass(frozen=True)
class Stability:
    """The noise of a curve about its trend, and its spikes.

    >>> dbg.health().dynamics.losses[0].stability.noise >= 0
    True
    """

    word: str
    """``steady``, ``noisy``, ``very noisy`` or ``not enough data``."""
    noise: float
    """Standard deviation of one value about the trend, by the differences of neighbours."""
    relative: float | None
    """The noise over the level (over the range of a curve that is not positive); None if that is 0 or unknown."""
    growth: float | None
    """Noise of the last third of the values over that of the third before it, each relative to its level; None if
    unknown."""
    spikes: tuple[int, ...] = ()
    """First steps of the spikes that the detector ``loss_spike`` found."""

    def __str__(self) -> str:
        if self.relative is None:
            return self.word
        spikes = f", {len(self.spikes)} spike{'' if len(self.spikes) == 1 else 's'}" if self.spikes else ""
        grows = f", {self.growth:.1f} times the noise before" if self.growth is not None and self.growth > 2 else ""
        return f"{self.word} (noise {percent(self.relative)} of the level{grows}{spikes})"


@dataclass(frozen=True)
class CurveDynamics:
    """The course of one curve of the run: a loss, the loss of the evaluations, or a metric.

    >>> loss = dbg.health().dynamics.losses[0]
    >>> print(loss.name, loss.state)
    loss diverged
    """

    name: str
    """Name of the curve: ``loss``, ``eval_loss``, ``accuracy``."""
    values: int
    """Number of values."""
    state: str
    """One of STATES."""
    reason: str
    """The finding behind the state, with its numbers."""
    initial: float
    """First finite value; NaN if there is none."""
    last: float
    """Level at the end: median of the last tenth of the values, at most 50; NaN if there is none."""
    lowest: float
    """Lowest level over the run; NaN if there is none."""
    lowest_step: int | None
    """Step of the lowest level. None if there is none."""
    fell: bool | None
    """True if the lowest level is below the first values by more than the noise and by 5%; None if there are too few
    values."""
    ends_nonfinite: bool = False
    """True if its last value is NaN or infinite."""
    rate: Rate | None = None
    """Relative fall per step at the end. None if there are too few values."""
    plateau: Plateau | None = None
    """The level stretch at the end. None if the curve has not levelled off."""
    expected: ExpectedEnd | None = None
    """Level to which it goes. None if no form fits: ``no_expectation`` says why."""
    no_expectation: str = ""
    """Why the expected end cannot be told; "" if it can."""
    stability: Stability = Stability("not enough data", 0.0, None, None)
    """Noise and spikes."""

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.state}: {self.reason}"]
        lines += [f"rate: {self.rate}"] * (self.rate is not None and self.state not in (DIVERGED, OSCILLATING))
        lines += [f"plateau: {self.plateau}"] * (self.plateau is not None)
        lines.append(f"expected end: {self.expected or 'cannot be told: ' + self.no_expectation}")
        lines.append(f"stability: {self.stability}")
        return "\n    ".join(lines)


@dataclass(frozen=True)
class LearningEfficiency:
    """The fall of the loss for each step and each sample, at the end against the first phase.

    >>> dbg.health().dynamics.efficiency is None
    True
    """

    first: float
    """Fall per step in the first third of the steps."""
    last: float
    """Fall per step in the last third of the steps; negative for a rise."""
    ratio: float
    """``last`` over ``first``."""
    per_sample: float | None
    """Fall per sample over the whole run. None if batch sizes were not recorded."""
    most_by: int
    """Step at which nine tenths of the whole fall were reached."""
    share_of_steps: float
    """Share of the steps up to then."""

    def __str__(self) -> str:
        reached = f"nine tenths of the fall were reached after {percent(self.share_of_steps)} of the steps"
        if abs(self.ratio) < 0.005:
            return f"{reached}; the last third gained nothing"
        if self.ratio >= 0:
            return f"{reached}; a step of the last third gains {percent(self.ratio)} of one of the first"
        return f"{reached}; the last third lost {percent(-self.ratio)} as fast as the first third gained"


@dataclass(frozen=True)
class GeneralisationGap:
    """The loss of the evaluations against that of the training at the same steps.

    >>> dbg.health().dynamics.gap is None
    True
    """

    word: str
    """``growing``, ``steady``, ``shrinking`` or ``not enough data`` (fewer than 5 evaluations)."""
    gap: float
    """Loss of the last evaluation minus the level of the training loss then."""
    relative: float | None
    """The gap over the level of the training loss. None if that is not positive."""
    evaluations: int
    """Number of evaluations that have a training loss beside them."""
    best_step: int
    """Step of the lowest loss of an evaluation."""
    overfits: bool
    """True if the gap grows and the loss of the evaluations has risen from its lowest level."""
    p: float
    """Probability of the order of the gaps in time if there is none, by Kendall's test."""

    def __str__(self) -> str:
        share = f" ({percent(self.relative)} of the training loss)" if self.relative and self.relative > 0 else ""
        best = f"; evaluations were best at step {self.best_step:,}" if self.overfits else ""
        return f"{self.word}: {number_text(self.gap)}{share} after {self.evaluations} evaluations{best}"


@dataclass(frozen=True)
class Anomaly:
    """One thing that is odd in the numbers of a run.

    >>> [anomaly.kind for anomaly in dbg.health().dynamics.anomalies]
    ['spike', 'divergence', 'nonfinite', ...]
    """

    kind: str
    """``nonfinite``, ``spike``, ``divergence``, ``learning_rate_jump``, ``throughput_falls`` or ``memory_grows``."""
    step: int
    """First step of it."""
    text: str
    """What was measured, as a sentence without its full stop."""
    severity: float = 1.0
    """Size from 0 to 1: the share of the run, or of the level, that it concerns."""

    def __str__(self) -> str:
        return f"step {self.step:,}: {self.text}"


@dataclass(frozen=True)
class TrainingDynamics:
    """The course of a training, from the numbers of its steps alone.

    >>> dynamics = dbg.health().dynamics
    >>> print(dynamics.state, len(dynamics.metrics))
    diverged 0
    """

    losses: tuple[CurveDynamics, ...] = ()
    """The loss of each optimizer."""
    evaluation: CurveDynamics | None = None
    """The loss of the evaluations. None if there were none."""
    metrics: tuple[CurveDynamics, ...] = ()
    """Metrics of the program's own, by name."""
    efficiency: LearningEfficiency | None = None
    """Fall of the loss for each step. None if it did not fall, or there are several losses."""
    gap: GeneralisationGap | None = None
    """Evaluation against training. None if there were no evaluations, or there are several losses."""
    anomalies: tuple[Anomaly, ...] = ()
    """Odd things, by first step."""

    @property
    def state(self) -> str:
        """State of the loss, one of STATES; of several losses the worst.

        >>> dbg.health().dynamics.state
        'diverged'
        """
        order = (DIVERGED, RISING, OSCILLATING, FEW_DATA, UNCLEAR, LEVELLED, FALLING)
        found = [curve.state for curve in self.losses]
        return min(found, key=order.index) if found else FEW_DATA

    def __str__(self) -> str:
        curves = [*self.losses, *([self.evaluation] if self.evaluation is not None else []), *self.metrics]
        lines = [str(curve) for curve in curves] or ["not enough data: no loss was recorded"]
        lines += [f"learning efficiency: {self.efficiency}"] * (self.efficiency is not None)
        lines += [f"generalisation gap: {self.gap}"] * (self.gap is not None)
        return "\n".join([*lines, *(f"anomaly at {anomaly}" for anomaly in self.anomalies)])

    def to_dict(self) -> dict[str, Any]:
        """Return the dynamics as strict JSON values.

        >>> dbg.health().dynamics.to_dict()["losses"][0]["state"]
        'diverged'
        """
        plain = jsonable(self)
        assert isinstance(plain, dict)
        return plain


def _per_cent(share: float) -> str:
    return f"{100 * share + 0.0:.2g}%"
