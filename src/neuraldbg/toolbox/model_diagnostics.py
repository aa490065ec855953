"""Diagnostics of the model by hand: its architecture and the metrics of its training enter, judgements leave.

What is recorded becomes scalars and facts of the session's steps, like those of a training that is watched. What is
asked is answered by the health stage, from the record of all of it.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from neuraldbg import arguments, health
from neuraldbg.errors import ConfigError
from neuraldbg.nouns import Fact, FactKey, jsonable
from neuraldbg.nouns.facts.architecture import ROWS, ArchitectureFact, LayerRow
from neuraldbg.nouns.step import metric_scalars
from neuraldbg.toolbox.model_structure import structure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neuraldbg.nouns import Diagnosis, RunRecord
    from neuraldbg.nouns.training_dynamics import Anomaly, TrainingDynamics
    from neuraldbg.nouns.training_health import ArchitectureAnalysis, Health, Recommendation

MEGA = 1e6
"""Bytes of a megabyte."""
OWN = {
    "accuracy": "metric/accuracy",
    "learning_rate": "lr",
    "batch_size": "batch_size",
    "throughput_samples_per_sec": "metric/throughput_samples_per_sec",
    "gpu_utilization": "metric/gpu_utilization",
    "validation_loss": "eval_loss",
}
"""Scalar of each field of ModelPerformanceMetrics that is recorded as it is given."""


@dataclass(frozen=True, kw_only=True)
class ModelArchitectureInfo:
    """The structure of a model. Numbers that are not given are not known; ``of`` reads them from a model.

    Raises ConfigError for a number that cannot be.

    >>> info = ModelArchitectureInfo(total_parameters=641, layer_count=2, layer_types={"Linear": 2})
    >>> ModelArchitectureInfo.of(model).total_parameters
    641
    """

    total_parameters: int
    """Number of parameters."""
    trainable_parameters: int | None = None
    """Number of parameters that training changes. None if unknown."""
    model_size_mb: float | None = None
    """Megabytes (10**6 bytes) of the parameters. None if unknown."""
    layer_count: int | None = None
    """Number of layers with parameters. None if unknown."""
    layer_types: Mapping[str, int] = field(default_factory=dict)
    """Number of layers by type; empty if unknown."""
    depth: int | None = None
    """Number of layers with parameters that data passes one after the other. None if unknown."""
    width: int | None = None
    """Largest number of outputs of a layer. None if unknown."""
    activation_functions: tuple[str, ...] = ()
    """Names of the activation functions; empty if unknown."""
    name: str = ""
    """Name of the model."""
    dataset_samples: int | None = None
    """Number of different samples of the training data. None if unknown."""
    layers: tuple[LayerRow, ...] = ()
    """Layers with path, type, parameters and shape, at most 1,000."""

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"total_parameters": _count(self.total_parameters, "total_parameters")}
        for name in ("trainable_parameters", "layer_count", "depth", "width", "dataset_samples"):
            value = getattr(self, name)
            checked[name] = None if value is None else _count(value, name)
        trained = checked["trainable_parameters"]
        if trained is not None and trained > checked["total_parameters"]:
            raise ConfigError(f"trainable_parameters: {trained:,} are more than all {checked['total_parameters']:,}")
        if self.model_size_mb is not None:
            checked["model_size_mb"] = _number(self.model_size_mb, "model_size_mb", least=0.0)
        types = arguments.mapping(self.layer_types, "layer_types")
        checked["layer_types"] = {
            arguments.text(kind, "layer_types"): _count(number, f"layer_types[{kind!r}]")
            for kind, number in types.items()
        }
        checked["activation_functions"] = arguments.texts(self.activation_functions, "activation_functions")
        arguments.text(self.name, "name")
        rows = tuple(
            arguments.one_of(row, (LayerRow,), "layers: give LayerRow objects, as ModelArchitectureInfo.of makes them")
            for row in arguments.several(self.layers)
        )
        checked["layers"] = rows[:ROWS]
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, model: Any, *, dataset_samples: int | None = None) -> ModelArchitectureInfo:
        """Read the structure of a torch or Keras model, or of a tree of arrays ({name: array}, lists of such).

        No framework is imported. Raises ConfigError for anything else, and for a model that is not built yet.

        >>> ModelArchitectureInfo.of({"fc1": {"kernel": np.zeros((8, 64)), "bias": np.zeros(64)}}).layers[0].path
        'fc1'
        """
        found = structure_of(model)
        same = {one.name for one in fields(cls)} & {one.name for one in fields(ArchitectureFact)}
        values = {name: getattr(found, name) for name in same - {"dataset_samples"}}
        return cls(**values, name=found.model, dataset_samples=dataset_samples)

    def fact(self) -> ArchitectureFact:
        """Return the structure as the fact that is recorded.

        >>> ModelArchitectureInfo(total_parameters=3).fact().total_parameters
        3
        """
        same = {one.name for one in fields(self)} - {"name"}
        return ArchitectureFact(model=self.name, **{name: getattr(self, name) for name in same})


@dataclass(frozen=True, kw_only=True)
class ModelPerformanceMetrics:
    """The numbers of one training step. A number that is not given is not recorded.

    NaN and infinite values are recorded as they are. Raises ConfigError for what is no number, and for a step or a size
    that cannot be.

    >>> ModelPerformanceMetrics(training_step=100, loss=0.5, accuracy=0.85, learning_rate=1e-4).loss
    0.5
    """

    training_step: int
    """Number of the step, from 0."""
    loss: float | None = None
    """Loss of the step."""
    accuracy: float | None = None
    """Accuracy, in the program's own unit."""
    learning_rate: float | None = None
    """Learning rate."""
    batch_size: int | None = None
    """Samples of the step."""
    throughput_samples_per_sec: float | None = None
    """Samples per second."""
    memory_usage_mb: float | None = None
    """Megabytes (10**6 bytes) of memory in use."""
    gpu_utilization: float | None = None
    """Share of the time in which the GPU works, in the program's own unit."""
    validation_loss: float | None = None
    """Loss of an evaluation before this step."""
    timestamp: float | dt.datetime | None = None
    """Time, in seconds since 1970 (Unix time) or as a datetime."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Further metrics by name, recorded as ``metric/NAME``."""

    def __post_init__(self) -> None:
        step = arguments.whole(self.training_step, "training_step")
        if step < 0:
            raise ConfigError(f"training_step: steps count from 0, so there is none at {step}")
        checked: dict[str, Any] = {"training_step": step}
        least = {"batch_size": 1.0, "throughput_samples_per_sec": 0.0, "memory_usage_mb": 0.0}
        for name in ("loss", "memory_usage_mb", *OWN):
            value = getattr(self, name)
            if value is not None:
                checked[name] = _number(value, name, least.get(name))
        if "batch_size" in checked:
            checked["batch_size"] = arguments.whole(self.batch_size, "batch_size")
        if isinstance(self.timestamp, dt.datetime):
            checked["timestamp"] = self.timestamp.timestamp()
        elif self.timestamp is not None:
            checked["timestamp"] = _number(self.timestamp, "timestamp")
        more = arguments.mapping(self.metrics, "metrics")
        taken = {one.name for one in fields(self)}
        for name in more:
            if not arguments.text(name, "metrics").strip():
                raise ConfigError("metrics: a metric needs a name, and one here has none")
            if name in taken:
                raise ConfigError(f"metrics: {name!r} is a field of its own; give {name}=...")
        checked["metrics"] = {name: _number(value, f"metrics[{name!r}]") for name, value in more.items()}
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def scalars(self) -> dict[str, float]:
        """Return the numbers under the names of a step's scalars: ``loss``, ``lr``, ``metric/accuracy``, ...

        >>> ModelPerformanceMetrics(training_step=0, loss=0.5, memory_usage_mb=2.0).scalars()
        {'loss': 0.5, 'loss_nonfinite': 0.0, 'resident': 2000000.0}
        """
        found: dict[str, float] = {}
        if self.loss is not None:
            found = {"loss": self.loss, "loss_nonfinite": float(not math.isfinite(self.loss))}
        for name, scalar in OWN.items():
            value = getattr(self, name)
            if value is not None:
                found[scalar] = float(value)
        if self.memory_usage_mb is not None:
            found["resident"] = self.memory_usage_mb * MEGA
        if self.timestamp is not None:
            found["timestamp"] = float(self.timestamp)  # type: ignore[arg-type]  # a number since __post_init__
        for name, value in self.metrics.items():
            found |= metric_scalars(name, value)
        return found


class ModelDiagnostics:
    """The part of a session that knows the model and the metrics of its training.

    Its answers are those of ``Run.health`` for the record so far: they may be asked at any time, and again.

    >>> session = debug_session()
    >>> for step in range(40):
    ...     gradients = {"fc1/kernel": np.full((8, 64), 0.1 * 0.97**step)}
    ...     session.record_step(step, loss=2.0 * 0.97**step, gradients=gradients)
    """

    def __init__(
        self,
        *,
        put_scalars: Callable[[int, dict[str, float]], None],
        put_fact: Callable[[Fact], None],
        record: Callable[[], RunRecord],
        diagnose: Callable[[], Diagnosis],
    ) -> None:
        self._put_scalars, self._put_fact = put_scalars, put_fact
        self._record, self._diagnose = record, diagnose
        self._step = 0

    def __repr__(self) -> str:
        return f"<ModelDiagnostics: newest step {self._step}>"

    def record_architecture(self, info_or_model: Any) -> ModelArchitectureInfo:
        """Record the structure of the model, and return it: a ModelArchitectureInfo, a torch or Keras model, or its
        parameters as a tree of arrays. A later one replaces it. Raises ConfigError as ``ModelArchitectureInfo.of``.

        >>> session.model_diagnostics.record_architecture({"fc1/kernel": np.zeros((8, 64))}).total_parameters
        512
        """
        given = isinstance(info_or_model, ModelArchitectureInfo)
        info: ModelArchitectureInfo = info_or_model if given else ModelArchitectureInfo.of(info_or_model)
        value = jsonable(info.fact())
        assert isinstance(value, dict)
        self._put_fact(Fact(self._step, FactKey.ARCHITECTURE.value, value))
        return info

    def record_performance(self, metrics: ModelPerformanceMetrics | None = None, **values: Any) -> None:
        """Record the numbers of a step, as ModelPerformanceMetrics or by its keywords. Raises ConfigError as it does.

        Steps may be sparse, every hundredth; the loss is recorded under ``loss``, an accuracy as ``metric/accuracy``. A
        keyword that is no field is a metric of the program's own.

        >>> session.model_diagnostics.record_performance(training_step=100, loss=0.5, accuracy=0.85, reward=3.0)
        """
        if metrics is None:
            known = {one.name for one in fields(ModelPerformanceMetrics)}
            more = {name: values.pop(name) for name in list(values) if name not in known}
            if "training_step" not in values:
                raise ConfigError("record_performance needs training_step, the number of the step: training_step=100")
            if more:
                values["metrics"] = {**arguments.mapping(values.get("metrics", {}), "metrics"), **more}
            metrics = ModelPerformanceMetrics(**values)
        elif values:
            raise ConfigError("record_performance: give ModelPerformanceMetrics or keywords, not both")
        arguments.one_of(metrics, (ModelPerformanceMetrics,), "record_performance: give ModelPerformanceMetrics")
        self._step = max(self._step, metrics.training_step)
        self._put_scalars(metrics.training_step, metrics.scalars())

    def analyze_training_dynamics(self) -> TrainingDynamics:
        """Return where loss, evaluations and metrics go: state, rate, plateau, expected end, stability, gap.

        >>> session.model_diagnostics.analyze_training_dynamics().state
        'falling'
        """
        return health.training_dynamics(self._record())

    def analyze_architecture(self) -> ArchitectureAnalysis:
        """Return the structure of the model, and its parameters against the data.

        >>> session.model_diagnostics.analyze_architecture().total_parameters
        512
        """
        return health.analyze_architecture(self._record())

    def assess_health(self) -> Health:
        """Return the health: a score that is explained, what was not judged, and advice.

        >>> health = session.model_diagnostics.assess_health()
        >>> print(health.score, health.verdict)
        100.0 healthy
        """
        return health.assess(self._record(), self._diagnose())

    def detect_anomalies(self) -> tuple[Anomaly, ...]:
        """Return what is odd in the numbers, by first step.

        >>> session.model_diagnostics.detect_anomalies()
        ()
        """
        return self.analyze_training_dynamics().anomalies

    def recommendations(self) -> tuple[Recommendation, ...]:
        """Return what to do, each with its reason: the remedies of the causes first.

        >>> print(session.model_diagnostics.recommendations()[0].text)
        Train longer
        """
        return self.assess_health().recommendations

    def summary(self) -> str:
        """Return architecture, score, dynamics and advice as text, a line each.

        >>> print(session.model_diagnostics.summary())
        512 parameters, ...
        """
        return f"{self.analyze_architecture()}\n\n{self.assess_health()}"


def _count(value: Any, what: str) -> int:
    found = arguments.whole(value, what)
    if found < 0:
        raise ConfigError(f"{what}: give a number that is not negative, not {found}")
    return found


def _number(value: Any, what: str, least: float | None = None) -> float:
    """Return a number, or a tensor or array of one, as a float. Raises ConfigError for anything else."""
    try:
        found = float(value) if arguments.is_number(value) else None
    except (TypeError, ValueError, RuntimeError, OverflowError):  # several numbers, or none
        found = None
    if found is None:
        raise ConfigError(f"{what}: give one number, not a {type(value).__name__} of {str(value)[:40]!r}")
    if least is not None and not found >= least:
        raise ConfigError(f"{what}: give a number from {least:g} on, not {found}")
    return found
