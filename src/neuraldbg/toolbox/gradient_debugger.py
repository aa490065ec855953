"""Gradients by layer that are recorded by hand: their verdict, their trend, their dead units, and what to do."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg import answers
from neuraldbg.arguments import text
from neuraldbg.nouns.accumulators import COUNT, NONFINITE, SQUARES, TOTAL
from neuraldbg.nouns.robust_statistics import kendall, theil_sen
from neuraldbg.toolbox.given_arrays import given
from neuraldbg.toolbox.parameter_names import owner_of
from neuraldbg.toolbox.statistics_row import raw_row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from neuraldbg.nouns import Diagnosis, Event, RunRecord
    from neuraldbg.toolbox.given_arrays import Given

    Floats = npt.NDArray[np.float64]

PART = 4096
"""Elements of a gradient that are read in a step that is not in the sample."""
MOST_NAMES = 1000
"""Names of what is left out that are kept for their number."""
ENOUGH = 10
"""Gradients of a layer before it is called healthy: as many steps as the detector of vanishing gradients waits for."""
FEW = 8
"""Gradients of a layer from which on a trend is told: as few as Kendall's test can be sure of."""
SURE = 0.01
"""Probability of a trend in noise below which it is told (Mann-Kendall, two-sided)."""
STEADY = 0.05
"""Change of a gradient over all that is kept, in decades, below which it is steady, however sure its sign is."""
SILENT = 20
"""Gradients in a row without which a unit is dead: as many as the live tool waits for (setting ``window``)."""
_SIGNS = {"nonfinite": 5, "exploding": 4, "spike": 3, "vanishing": 2, "zero": 1}
"""States of a layer, the worst with the largest number."""


@dataclass(frozen=True)
class LayerGradients:
    """The gradients of one layer: its state now, and its course over the newest gradients."""

    layer: str
    """Name of the layer."""
    state: str
    """``healthy``, ``vanishing``, ``zero``, ``exploding``, ``spike``, ``nonfinite`` or ``not enough data``."""
    norm: float
    """Newest L2 norm; NaN if a value was not finite."""
    median_norm: float
    """Median of the L2 norms that are kept; NaN if there is none."""
    records: int
    """Number of gradients that were recorded."""
    trend: str
    """``growing``, ``shrinking``, ``steady``, ``no trend`` or ``not enough data`` (below 8 gradients that are finite
    and not zero)."""
    rate: float
    """Factor per gradient of the norm, by the slope of Theil and Sen of its logarithm; NaN without enough data."""
    dead_units: int | None
    """Rows or columns of the gradient, whichever are more, that were exactly zero in each of the last 20 gradients;
    None for a gradient without two axes, or before 20 of them."""
    units: int | None
    """Number of those rows or columns in all. None where ``dead_units`` is."""

    def __str__(self) -> str:
        """Return a line for the layer."""
        told = [f"{self.layer}: {self.state}, norm {self.norm:.3g}"]
        if self.trend in ("growing", "shrinking"):
            told.append(f"{self.trend} by a factor of {self.rate:.3g} per gradient")
        elif self.trend == "steady":
            told.append("steady")
        if self.dead_units:
            told.append(f"{self.dead_units} of {self.units} units without a gradient")
        return ", ".join(told)


@dataclass(frozen=True)
class GradientFlow:
    """The gradients of all layers, as recorded by hand."""

    overall_health: str
    """The worst state of a layer: ``nonfinite``, ``exploding``, ``spike``, ``vanishing``, ``zero``, ``healthy``; ``not
    enough data`` if all is well so far, but there are fewer than ten steps."""
    layers: Mapping[str, LayerGradients]
    """Layers by name, in the order in which they were first recorded."""
    step: int
    """Newest step with gradients; -1 without any."""
    advice: tuple[str, ...] = ()
    """Causes that the diagnosis names, each with its fix."""
    events: tuple[Event, ...] = field(default=(), repr=False)
    """Events about gradients that still last."""

    def __str__(self) -> str:
        """Return the overall health, a line for each layer, and the advice."""
        if not self.layers:
            return "gradients: none was recorded"
        lines = [f"gradients at step {self.step}: {self.overall_health}"]
        lines += [f"  {layer}" for layer in self.layers.values()]
        return "\n".join([*lines, *(f"  → {one}" for one in self.advice)])


class _Course:
    """The newest gradients of one layer."""

    def __init__(self, most: int) -> None:
        self.norms: deque[tuple[Sequence[int], float]] = deque(maxlen=most)
        """Step, which may still change its number, and L2 norm of each gradient."""
        self.records = 0
        self.silent: tuple[npt.NDArray[np.int64], ...] = ()
        """Gradients in a row in which each row, and each column, was exactly zero; empty for one without two axes."""

    def add(self, step: Sequence[int], norm: float, values: npt.NDArray[Any]) -> None:
        self.records += 1
        self.norms.append((step, norm))
        if values.ndim < 2 or 0 in values.shape:
            self.silent = ()
            return
        moved = values != 0  # NaN is not zero
        alive = (moved.reshape(len(values), -1).any(axis=1), moved.reshape(-1, values.shape[-1]).any(axis=0))
        known = self.silent if [len(one) for one in self.silent] == [len(one) for one in alive] else None
        before = known or tuple(np.zeros(len(one), np.int64) for one in alive)
        self.silent = tuple(np.where(now, 0, count + 1) for now, count in zip(alive, before, strict=True))

    def dead(self) -> tuple[int | None, int | None]:
        """Return the number of dead rows or columns, whichever are more, and of all of them."""
        if not self.silent or self.records < SILENT:
            return None, None
        found = [(int((one >= SILENT).sum()), len(one)) for one in self.silent]
        return max(found, key=lambda pair: pair[0] / pair[1])


class GradientDebugger:
    """Records the gradients of layers by hand, and says how they are.

    ``step`` returns the number of the open step as one item, ``samples`` True if only a part of large tensors is read
    in it, ``turn`` ends the step if it has a gradient of this name already, ``tell`` gets kind, name, values and
    statistics of each gradient.

    >>> session = debug_session()
    >>> session.gradient_debugger.record_gradient_flow("layer_1", [0.01, 0.02, 0.015, 0.008])
    """

    def __init__(
        self,
        *,
        most_layers: int,
        history: int,
        step: Callable[[], Sequence[int]],
        samples: Callable[[], bool],
        turn: Callable[[str], None],
        tell: Callable[[str, str, Given, Floats], None],
        record: Callable[[], RunRecord],
        diagnose: Callable[[], Diagnosis],
    ) -> None:
        self._most, self._history = most_layers, history
        self._step, self._samples, self._turn, self._tell = step, samples, turn, tell
        self._record, self._diagnose = record, diagnose
        self._courses: dict[str, _Course] = {}
        self.left_out: set[str] = set()
        """Names beyond the most that are followed, a thousand of them at most."""

    def record_gradient_flow(self, layer_name: str, gradient: Any) -> None:
        """Record a layer's gradient: an array of any framework, or a list of numbers. ``layer_name`` is the name of the
        layer, or of its parameter (``fc1.weight``, ``dense/kernel``). Raises ConfigError for anything else.

        Without numbered steps, a gradient of a name that the open step has already begins the next step.

        >>> session.gradient_debugger.record_gradient_flow("fc1.weight", np.ones((4, 3)))
        """
        name = text(layer_name, "the layer's name")
        self.record(name, given(gradient, f"the gradient of {name!r}"))

    def record(self, name: str, found: Given) -> None:
        """Record a gradient that was converted already."""
        course = self._courses.get(name)
        if course is None:
            if len(self._courses) >= self._most:
                if len(self.left_out) < MOST_NAMES:
                    self.left_out.add(name)
                return
            course = _Course(self._history)
        self._turn(name)
        row = raw_row_of(found.spaced(PART) if self._samples() else found)
        self._tell("param_grad", name, found, row)
        course = self._courses.setdefault(name, course)
        course.add(self._step(), _norm(row), found.values)

    def analyze_gradient_flow(self) -> GradientFlow:
        """Return the state of each layer's gradients, its trend, and advice from the causes of the diagnosis.

        States are those of the detectors of a live session; "not enough data" is said where they have seen too little.

        >>> session.gradient_debugger.analyze_gradient_flow().overall_health
        'not enough data'
        """
        record = self._record()
        health = answers.gradient_health(record)
        layers = {name: self._layer(name, course, health) for name, course in self._courses.items()}
        states = [one.state for one in layers.values()]
        worst = max(states, key=lambda state: _SIGNS.get(state, 0), default="not enough data")
        if worst in ("healthy", "not enough data"):
            worst = "healthy" if states and all(state == "healthy" for state in states) else "not enough data"
        return GradientFlow(worst, layers, health.step, self._advice() if worst in _SIGNS else (), health.events)

    def history(self, layer_name: str) -> tuple[list[int], list[float]]:
        """Return steps and L2 norms of the newest gradients of a name, both empty for an unknown one.

        >>> session.gradient_debugger.history("layer_1")[0]
        [0]
        """
        course = self._courses.get(layer_name)
        found = list(course.norms) if course is not None else []
        return [step[0] for step, _ in found], [norm for _, norm in found]

    @property
    def names(self) -> tuple[str, ...]:
        """Names under which gradients were recorded, in the order of their first.

        >>> session.gradient_debugger.names
        ('layer_1', 'fc1.weight')
        """
        return tuple(self._courses)

    def _layer(self, name: str, course: _Course, health: answers.GradientHealth) -> LayerGradients:
        norms = np.array([norm for _, norm in course.norms])
        newest = float(norms[-1])
        state = health.layers.get(owner_of(name)[0], "healthy")
        if not np.isfinite(newest):
            state = "nonfinite"
        elif state == "zero" and newest > 0:
            state = "healthy"  # of another parameter of the layer
        elif newest == 0 and (norms == 0).all() and len(norms) >= ENOUGH:
            state = "zero"
        if state in ("healthy", "no gradient"):
            state = "healthy" if course.records >= ENOUGH else "not enough data"
        finite = norms[np.isfinite(norms)]
        trend, rate = _trend(norms)
        dead, units = course.dead()
        median = float(np.median(finite)) if len(finite) else float("nan")
        return LayerGradients(name, state, newest, median, course.records, trend, rate, dead, units)

    def _advice(self) -> tuple[str, ...]:
        from neuraldbg.explain import CREDIBLE  # noqa: PLC0415 (a hundred causes, needed when somebody asks)

        named = [one for one in self._diagnose().hypotheses if one.confidence >= CREDIBLE]
        return tuple(f"{one.cause} ({one.confidence:.0%}): {one.remedy.text}" for one in named)


def _norm(row: Floats) -> float:
    """Return the L2 norm by a tensor's accumulators; NaN if a value is not finite."""
    if row[NONFINITE] > 0:
        return math.nan
    return math.sqrt(row[SQUARES] * row[TOTAL] / row[COUNT]) if row[COUNT] > 0 else 0.0


def _trend(norms: Floats) -> tuple[str, float]:
    """Return the trend of norms in words, and its factor per gradient, on a logarithmic scale."""
    usable = norms[np.isfinite(norms) & (norms > 0)]
    if len(usable) < FEW:
        return "not enough data", float("nan")
    decades = np.log10(usable)
    slope = theil_sen(np.arange(len(decades), dtype=np.float64), decades).value
    rate = float(10.0**slope)
    if abs(slope) * (len(decades) - 1) < STEADY:
        return "steady", rate
    if kendall(decades).p > SURE:
        return "no trend", rate
    return "growing" if slope > 0 else "shrinking", rate
