"""Recording by hand: whole steps, evaluations, inputs, and what is known of the optimizer and the loss."""

from __future__ import annotations

import difflib
import threading
from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

from neuraldbg import clocks
from neuraldbg.arguments import mapping, text, whole
from neuraldbg.errors import ConfigError
from neuraldbg.nouns import Fact, Site, jsonable
from neuraldbg.nouns.facts.batch import BatchFact
from neuraldbg.nouns.facts.loss import LossFact, LossTerm
from neuraldbg.nouns.facts.optimizer import OptimizerFact, ParameterGroup
from neuraldbg.nouns.step import metric_scalars
from neuraldbg.toolbox.batch_columns import batch_leaf
from neuraldbg.toolbox.debug_config import DebugConfig, whole_in
from neuraldbg.toolbox.given_arrays import given
from neuraldbg.toolbox.gradient_debugger import PART, GradientDebugger
from neuraldbg.toolbox.layer_shapes import Shaped
from neuraldbg.toolbox.parameter_names import leaves, owner_of
from neuraldbg.toolbox.parameter_updates import ParameterUpdates
from neuraldbg.toolbox.statistics_row import raw_row_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from neuraldbg.toolbox.given_arrays import Given
    from neuraldbg.toolbox.hand_profiler import HandProfiler
    from neuraldbg.toolbox.hand_steps import HandSteps

    Floats = npt.NDArray[np.float64]

MIB = 2**20
LOSSES = ("cross_entropy", "nll", "bce", "bce_with_logits", "mse", "l1", "smooth_l1", "huber", "kl_div")
"""Forms of a loss that can be recorded."""


class HandRecording:
    """The part of ``DebugSession`` by which a program records: each value goes into the step that is open."""

    def __init__(self, config: DebugConfig) -> None:
        self.config = config
        self._updates = ParameterUpdates(config.kept_mb * MIB)
        self._notes: deque[str] = deque(maxlen=20)
        self._names: dict[tuple[str, str, str], str] = {}
        """Name that the program has for a parameter, by kind of site, layer and name in the run."""
        self._lock = threading.RLock()
        """Held while a whole step is recorded, and at begin and end of the run."""

    @property
    @abstractmethod
    def gradient_debugger(self) -> GradientDebugger:
        """The part that follows the gradients of layers."""

    @property
    @abstractmethod
    def profiler(self) -> HandProfiler:
        """The part that measures times and memory."""

    @abstractmethod
    def _steps(self) -> HandSteps:
        """Return the steps of the run."""

    @abstractmethod
    def uses(self, part: str) -> bool:
        """Return True if a part of the session was used."""

    def begin_step(self, step: int) -> None:
        """Open a step by its number: all that is recorded from now on belongs to it. Raises ConfigError for a step that
        is over: steps are counted over all epochs.

        >>> session.begin_step(4)
        """
        self._steps().begin(_number(step))

    def record_step(
        self,
        step: int | None = None,
        *,
        loss: Any = None,
        learning_rate: Any = None,
        batch_size: int | None = None,
        gradients: Any = None,
        parameters: Any = None,
        activations: Any = None,
        metrics: Mapping[str, Any] | None = None,
        **more_metrics: Any,
    ) -> None:
        """Record a whole step of a loop of one's own; the step is over then.

        ``gradients``, ``parameters`` and ``activations`` are arrays by name, nested as they are: dictionaries, lists,
        tuples, dataclasses (``{"dense1": {"kernel": ..., "bias": ...}}``). Record a step when its update is
        done: of parameters those before it are recorded, and the update, so that the first step has none without
        ``record_parameters``. ``metrics``, and all further arguments, are numbers by name. ``step`` is counted over
        all epochs; without it steps are counted from 0. Raises ConfigError for what is no number, and then records
        nothing of the step.

        >>> session.record_step(4, loss=0.7, learning_rate=0.1, parameters={"w": [0.5, 0.2]}, accuracy=0.8)
        """
        began = clocks.perf_counter()
        scalars = {"loss": loss, "lr": learning_rate, "batch_size": batch_size}
        named = {**mapping(metrics or {}, "metrics"), **more_metrics}
        found = {name: _real(value, name) for name, value in scalars.items() if value is not None}
        for name, value in named.items():
            found |= metric_scalars(str(name), _real(value, name)) if value is not None else {}
        trees = {"param_grad": gradients, "param": parameters, "activation": activations}
        words = {"param_grad": "gradients", "param": "parameters", "activation": "activations"}
        arrays = [
            (kind, name, given(value, f"{words[kind]}: {name!r}"))
            for kind, tree in trees.items()
            if tree is not None
            for name, value in leaves(tree, words[kind])
        ]
        with self._lock:
            steps = self._steps()
            with steps.lock:
                steps.begin_whole(None if step is None else _number(step))
                steps.put_scalars(found)
                for kind, name, one in arrays:
                    if kind == "param_grad":
                        self.gradient_debugger.record(name, one)
                    elif kind == "param":
                        self._record_parameter(name, one)
                    else:
                        self._put(Site("activation", name, 0, "", one.dtype), self._row(one))
                took = clocks.perf_counter() - began
                steps.spent(took)
                steps.end()
        if self.uses("profiler"):
            self.profiler.leave_out(clocks.perf_counter() - began)

    def record_evaluation(
        self, *, loss: Any = None, metrics: Mapping[str, Any] | None = None, **more_metrics: Any
    ) -> None:
        """Record the loss and the metrics of an evaluation, on data that the model is not trained with. They belong to
        the step that has just ended. Raises ConfigError for what is no number.

        >>> session.record_evaluation(loss=0.9, accuracy=0.7)
        """
        named = {**mapping(metrics or {}, "metrics"), **more_metrics}
        found: dict[str, float] = {}
        for name, value in named.items():
            found |= metric_scalars(f"eval/{name}", _real(value, name)) if value is not None else {}
        if loss is not None:
            found |= {"eval_loss": _real(loss, "loss"), "evals": 1.0, "eval_passes": 1.0}
        self._steps().put_late(found)

    def record_parameters(self, parameters: Any) -> None:
        """Record the parameters that the training begins with, arrays by name as in ``record_step``: so the first step
        has weights and an update, too.

        >>> session.record_parameters({"w": [0.5, 0.2]})
        """
        for name, value in leaves(parameters, "parameters"):
            self._updates.update(name, given(value, f"parameters: {name!r}"))

    def record_inputs(self, inputs: Any, name: str = "") -> None:
        """Record a batch of inputs, samples first, in the step that is open: causes judge its scale. ``name`` tells
        several inputs apart.

        >>> session.record_inputs([[0.5, 0.1], [0.2, 0.9]])
        """
        found = given(inputs, "the inputs")
        text(name, "the name of the inputs")
        self._put(Site("input", "", 0, name, found.dtype), self._row(found))
        leaf = batch_leaf(found)
        self._put_fact("batch", BatchFact(inputs={name: leaf}))

    def record_optimizer(self, name: str, *, learning_rate: float | None = None, **settings: Any) -> None:
        """Record the optimizer and its settings, such as ``momentum``, ``weight_decay``, ``betas`` or ``eps``: causes
        judge learning rate and updates by them.

        >>> session.record_optimizer("Adam", learning_rate=1e-3, betas=(0.9, 0.999))
        """
        known = {field for field in ParameterGroup.__dataclass_fields__ if field not in ("params", "lr")}
        unknown = sorted(set(settings) - known)
        if unknown:
            raise ConfigError(f"{unknown[0]!r} is no setting of an optimizer; known are {', '.join(sorted(known))}")
        group = ParameterGroup(lr=None if learning_rate is None else _real(learning_rate, "learning_rate"), **settings)
        fact = OptimizerFact(foreign_no_grad=0, owned=0, type=text(name, "the optimizer's name"), groups=(group,))
        self._put_fact("optimizer", fact)

    def record_loss(self, kind: str, *, classes: int = 0, reduction: str = "mean") -> None:
        """Record the form of the loss: what a constant guess would reach is told by it. ``kind`` is ``cross_entropy``,
        ``bce``, ``mse``, ``l1``, or another of ``LossTerm.kind``; ``classes`` is the number of classes.

        >>> session.record_loss("cross_entropy", classes=10)
        """
        if kind not in LOSSES:
            near = ", ".join(difflib.get_close_matches(str(kind), LOSSES, n=3, cutoff=0.3)) or ", ".join(LOSSES)
            raise ConfigError(f"{kind!r} is no form of a loss that is known. Did you mean: {near}?")
        if reduction not in ("mean", "sum"):
            raise ConfigError(f"reduction: give 'mean' or 'sum', not {reduction!r}")
        term = LossTerm(kind=kind, reduction=reduction, classes=_number(classes, "classes"), sign=1)
        self._put_fact("loss", LossFact(terms=(term,)))

    def note(self, words: str) -> None:
        """Add a sentence to the coverage of the run, such as what was left out and why.

        >>> session.note("the embedding is not recorded")
        """
        self._notes.append(text(words, "the note"))

    def _record_parameter(self, name: str, found: Given) -> None:
        """Record a parameter as it was before this step, and its update: what a watched training records."""
        known = self._updates.update(name, found)
        if known is not None:
            before, change = known
            self._put_parameter("param", name, before, self._row(before))
            self._put_parameter("update", name, change, raw_row_of(change))

    def _put_parameter(self, kind: str, name: str, found: Given, row: Floats) -> None:
        site, (layer, _, given_name) = self._parameter_site(kind, name, found.dtype), owner_of(name)
        self._steps().shaped(layer, site.name, Shaped(given_name, found.shape, found.framework))
        self._put(site, row)

    def _parameter_site(self, kind: str, name: str, dtype: str = "") -> Site:
        """Return the site of a parameter, or of its gradient or update. Of two that a run would call the same the
        second keeps its own name: of a layer's weight and its scale the last part, of ``a.b`` and ``a/b`` the whole.
        """
        layer, parameter, given_name = owner_of(name)
        first = self._names.setdefault((kind, layer, parameter), name)
        if first == name:
            return Site(kind, layer, 0, parameter, dtype)
        if owner_of(first)[2] != given_name:
            return Site(kind, layer, 0, given_name, dtype)
        return Site(kind, name, 0, parameter, dtype)

    def _put_fact(self, key: str, fact: OptimizerFact | LossFact | BatchFact) -> None:
        value, steps = jsonable(fact), self._steps()
        assert isinstance(value, dict)
        steps.put_fact(Fact(steps.step, key, value))

    def _put(self, site: Site, row: Floats) -> None:
        self._steps().put(site, row)

    def _row(self, found: Given) -> Floats:
        return raw_row_of(found.spaced(PART) if self._samples() else found)

    def _samples(self) -> bool:
        """Return True in a step in which only a part of large tensors is read."""
        return not whole_in(self._steps().step, self.config.sampling_rate)


def _number(value: Any, what: str = "step") -> int:
    if (found := whole(value, what)) < 0:
        raise ConfigError(f"{what}: give a number from 0 on, not {found}")
    return found


def _real(value: Any, what: str) -> float:
    """Return a number of any framework as a float. Raises ConfigError for several."""
    try:
        found = given(value, what).values
    except ConfigError:
        raise ConfigError(f"{what}: give one real number, not a {type(value).__name__}") from None
    if found.size != 1 or found.dtype.kind == "c":
        raise ConfigError(f"{what}: give one real number, not an array of shape {found.shape}")
    return float(found.reshape(()))
