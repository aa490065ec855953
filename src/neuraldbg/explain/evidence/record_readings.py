"""The readings of a run's record that many causes need: cached, and without judgement."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from neuraldbg.explain.evidence.first_nonfinite import Origin, find_origin
from neuraldbg.explain.evidence.input_stages import stages
from neuraldbg.explain.evidence.loss_curve import LossSummary
from neuraldbg.explain.evidence.loss_form import renewals
from neuraldbg.explain.evidence.own_targets import growing
from neuraldbg.nouns import Series
from neuraldbg.nouns.facts.batch import BatchFact, BatchLeaf
from neuraldbg.nouns.facts.loss import LossFact, LossTerm
from neuraldbg.nouns.facts.optimizer import OptimizerFact, ParameterGroup
from neuraldbg.nouns.facts.params import ParamsFact
from neuraldbg.nouns.facts.precision import PrecisionFact
from neuraldbg.nouns.loss_names import loss_names, loss_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from neuraldbg.explain.evidence.ranks import Ranks
    from neuraldbg.nouns import Event, History, Layer, Layout, RunRecord

ADAPTIVE = ("Adam", "RMSprop", "Adagrad", "Adadelta", "Lion", "Rprop", "Adafactor", "LAMB", "Shampoo", "Muon")
"""Optimizers whose step does not grow with the scale of the gradient."""
LR_MAX = {"adaptive": 1e-2, "plain": 1.0}
"""The largest learning rates in common use, for Adam and its kin and for SGD."""
LR_USUAL = {"adaptive": 3e-3, "plain": 0.1}
"""The largest learning rates that tutorials and papers begin with: up to these, "too high" needs a reason."""
LR_MIN = {"adaptive": 1e-6, "plain": 1e-5}
"""The smallest learning rates in common use."""
RELU_TYPES = ("ReLU", "ReLU6")
BOUNDED_TYPES = ("Sigmoid", "Tanh", "Hardtanh", "Hardsigmoid", "Softsign")
Standing: TypeAlias = Literal["frozen", "not_in_optimizer", "no_grad", "uncalled", "zero_lr"]
"""The lists of names in a PARAMS fact."""


@dataclass(frozen=True)
class InputStats:
    """The statistics of one input tensor of the root model, medians over the first recorded steps."""

    row: int
    leaf: str
    """Name of the tensor among the inputs."""
    dtype: str
    mean: float
    std: float
    rms: float
    low: float
    high: float
    columns: tuple[float, float] | None
    """Smallest and largest standard deviation over the columns of a 2-D input; None for images or if unknown."""

    @property
    def integer(self) -> bool:
        """Return True if the tensor holds integers or booleans (ids) rather than measurements."""
        return self.dtype.removeprefix("torch.").startswith(("int", "uint", "bool", "long"))


BREAKS = ("nonfinite_loss", "loss_divergence")
"""Kinds of events of a training that breaks."""
BROKEN = 0.5
"""Confidence from which such an event counts."""
MODEL_SITES = 2
"""Gradients of a model that show when it was trained."""
ROUNDS, SHORT = 8, 30
"""Trainings one after another, each of fewer steps, that are the rounds of one: the clients of a federated training."""


class Training(NamedTuple):
    """One of several trainings in a run."""

    stream: int
    first: int
    last: int
    """Its first and its last step."""
    optimizer: str
    model: str
    """Name of the model. "" if it is not known."""

    def __str__(self) -> str:
        who = " with ".join(name for name in (self.model, self.optimizer) if name)
        steps = f"steps {self.first:,} to {self.last:,}" if self.last > self.first else f"step {self.first:,}"
        return f"{steps} ({who})" if who else steps


class Joined(NamedTuple):
    """Names that came to a list of the PARAMS fact in mid-run."""

    names: list[str]
    """Names of parameters, in data-flow order."""
    since: int
    """Step of the last reading of facts before."""
    until: int
    """Step of the first reading with them."""


class RecordReadings:
    """Cached readings of a RunRecord, of the main optimizer (the one with most steps) unless another is named."""

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self.layout: Layout = run.layout
        self.history: History = run.history
        self.job: Ranks | None = None
        """The ranks that train together with this one; None if it is judged alone."""

    @cached_property
    def by_hand(self) -> bool:
        """True if the numbers were recorded by hand: nothing of the program itself is known."""
        return bool(self.run.info.coverage.get("by_hand"))

    @cached_property
    def stream(self) -> int:
        """Number of the optimizer with the most steps, the first of equals. Of trainings one after another it is that
        of the first whose loss broke.
        """
        broke = [event for event in self.run.events if event.kind in BREAKS and event.confidence >= BROKEN]
        for training in self.trainings:
            if training.stream not in self.rounds and any(
                training.first <= event.first_step <= training.last for event in broke
            ):
                return training.stream
        streams = [int(s) for s in self.history.stream]
        return min(Counter(streams).items(), key=lambda kv: (-kv[1], kv[0]))[0] if streams else 0

    @cached_property
    def trainings(self) -> tuple[Training, ...]:
        """The trainings that ran one after another, each with an optimizer of its own: the folds of a cross-validation,
        a search for a learning rate. Empty for a single one, and if optimizers step by turns.
        """
        streams = self.run.streams
        if len(streams) < 2 or not all(self._alone(stream) for stream in streams):
            return ()
        found = []
        for stream in streams:
            rows = np.flatnonzero(self.history.stream == stream)
            first = int(self.history.steps[rows[0]])
            last = int(self.history.steps[rows[-1]] + self.history.width[rows[-1]] - 1)
            name = self.run.info.optimizers[stream] if stream < len(self.run.info.optimizers) else ""
            found.append(Training(stream, first, last, name, self._trained(rows)))
        return tuple(sorted(found, key=lambda training: training.first))

    @cached_property
    def rounds(self) -> frozenset[int]:
        """Optimizers of trainings of a few steps, of many one after another: the next goes on with what each left, and
        the last of a few losses is that of one batch.
        """
        if len(self.trainings) < ROUNDS:
            return frozenset()
        return frozenset(one.stream for one in self.trainings if one.last - one.first < SHORT)

    def _trained(self, rows: npt.NDArray[np.intp]) -> str:
        """Return the name of the model of which gradients were read in some rows; "" if of none or of several."""
        named = set()
        for model in {layer.model for layer in self.layout.layers}:
            of = {layer.path for layer in self.layout.layers if layer.model == model}
            sites = [row for row in self.layout.rows("param_grad") if self.layout.sites[row].module in of]
            sites = [row for row in sites if row < self.history.sites][:MODEL_SITES]
            if sites and (self.history.stat(sites, "count", "max")[rows] > 0).any():
                named.add(model)
        return named.pop() if len(named) == 1 else ""

    @cached_property
    def alone(self) -> bool:
        """Return True if no other optimizer steps between the first and the last step of the main one.

        A teacher that is trained before its student, or the next fold, is another training; a critic is not.
        """
        return self._alone(self.stream)

    def _alone(self, stream: int) -> bool:
        mine = np.flatnonzero(self.history.stream == stream)
        return len(mine) == 0 or len(mine) == mine[-1] - mine[0] + 1

    def scalar(self, name: str, stream: int | None = None) -> Series:
        """Return one scalar of the main optimizer, or of another, over its steps."""
        return self.run.scalar(name, self.stream if stream is None else stream)

    def loss_of(self, stream: int) -> LossSummary:
        """Return the summary of the losses of one optimizer."""
        renewed = renewals(self.run.versions(LossFact, stream=stream))
        series = self.run.scalar("loss", stream)
        return LossSummary(series, alone=self._alone(stream), renewed=renewed, reshaped=self._stages)

    @cached_property
    def _stages(self) -> tuple[tuple[int, int], ...]:
        return tuple(sorted((*stages(self.run.facts), *self.growing_targets)))

    @cached_property
    def growing_targets(self) -> tuple[tuple[int, int], ...]:
        """Steps between which targets that a model makes for itself have grown; empty if there are none."""
        return growing(self.run.facts)

    def loss_words(self, stream: int | None = None) -> str:
        """Return the loss of the main optimizer, or of another, in words: ``the loss`` if the run has only one."""
        return loss_words(self.loss_names.get(self.stream if stream is None else stream, "loss"))

    @cached_property
    def loss_names(self) -> dict[int, str]:
        """Names of the losses by the number of their optimizer."""
        return loss_names(self.run)

    @cached_property
    def loss(self) -> LossSummary:
        """Summary of the losses of the main optimizer."""
        return self.loss_of(self.stream)

    @cached_property
    def scaled(self) -> bool:
        """Return True if a gradient scaler was used."""
        return bool(len(self.run.scalar("loss_scale"))) or self.precision.scaler

    @cached_property
    def origin(self) -> Origin | None:
        """Step and sites of the first NaN or infinity; None if the run stayed finite."""
        return find_origin(self.run, scaled=self.scaled)

    def event(self, *kinds: str) -> Event | None:
        """Return the earliest event of these kinds, None if there is none."""
        found = self.run.events_of(*kinds)
        return min(found, key=lambda e: e.first_step) if found else None

    @cached_property
    def _told(self) -> npt.NDArray[np.bool_]:
        """Rows of the history that are steps; all other rows are tables that were kept longer than their scalars."""
        known = [
            self.history.scalars[name] for name in ("lr", "loss", "loss_nonfinite") if name in self.history.scalars
        ]
        found = np.any([np.isfinite(values) for values in known], axis=0) if known else np.zeros(0, np.bool_)
        return found if found.any() else np.ones(len(self.history), np.bool_)

    @cached_property
    def _read(self) -> npt.NDArray[np.bool_]:
        """Rows of the history whose sites were read; every row if no site was ever read."""
        history = self.history
        if not history.read.any():
            return np.ones(len(history), np.bool_)
        first = history.steps[history.read]
        end = np.maximum.accumulate(first + history.width[history.read])
        before = np.searchsorted(first, history.steps, side="right") - 1
        return history.read | ((before >= 0) & (history.steps < end[np.maximum(before, 0)]))

    def steps_read(self, stream: int | None = None) -> int:
        """Return the number of recorded full steps of an optimizer, or of all; the others were light."""
        rows = self._read & self._told
        return int((rows if stream is None else rows & (self.history.stream == stream)).sum())

    @property
    def steps_taken(self) -> int:
        """The number of steps of the run, where a loss that was thinned to bins has fewer values."""
        return self.run.steps or len(self.history)

    @property
    def steps_known(self) -> int:
        """The number of recorded steps, full and light; steps that were folded into one row count as one."""
        return int(self._told.sum())

    @cached_property
    def skips(self) -> bool:
        """Return True if some recorded steps were light."""
        return bool((self._told & ~self._read).any())

    def was_read(self, step: int) -> bool:
        """Return True if the sites were read in a step."""
        history = self.history
        hit = np.flatnonzero((history.steps <= step) & (step < history.steps + history.width))
        return bool(self._read[hit].any())

    def last_read(self, step: int) -> int | None:
        """Return the last step before a step whose sites were read; None if there is none."""
        history = self.history
        ends = (history.steps + history.width - 1)[self._read & (history.steps + history.width - 1 < step)]
        return int(ends.max()) if len(ends) else None

    def read_within(self, first: int, end: int) -> bool:
        """Return True if the sites were read in any step from ``first`` on and before ``end``."""
        history = self.history
        return bool(self._read[(history.steps < end) & (history.steps + history.width > first)].any())

    @cached_property
    def throughout(self) -> str:
        """The wording of "always" for readings of sites: "in all 200 steps", or "in all 48 steps that were read, of
        200".
        """
        steps = self.run.steps or len(self.history)
        return f"in all {self.steps_read()} steps that were read, of {steps}" if self.skips else f"in all {steps} steps"

    @cached_property
    def counted(self) -> str:
        """The words behind a noun of which only those in full steps were counted: " that were read"; empty if all steps
        were full, so that the count is a total.
        """
        return " that were read" if self.skips else ""

    def rank(self, series: Series) -> npt.NDArray[np.int64]:
        """Return the index of the step of each value of a series, counted from 0 over all steps of its optimizers, full
        and light.
        """
        found: npt.NDArray[np.int64] = np.searchsorted(self._own(series), series.steps)
        return found

    def _own(self, series: Series) -> npt.NDArray[np.int64]:
        """Return all steps of the optimizers in whose steps a series has values."""
        history = self.history
        at = np.clip(np.searchsorted(history.steps, series.steps, side="right") - 1, 0, max(0, len(history) - 1))
        mine = np.isin(history.stream, np.unique(history.stream[at])) & self._told
        return np.unique(history.steps[mine])

    def held(self, series: Series) -> Series:
        """Repeat each reading of a series for the unread steps after it, so that shares and medians are over the whole
        run and not over the parts with most full steps. A series without unread steps is returned as it is.
        """
        if not self.skips or not len(series):
            return series
        rank = self.rank(series)
        gaps = np.maximum(np.diff(rank), 1)
        # The last reading is repeated to the end of the run, but at most as often as any other.
        rest = max(1, min(len(self._own(series)) - int(rank[-1]), int(gaps.max(initial=1))))
        times = np.append(gaps, rest)
        return Series(np.repeat(series.steps, times), np.repeat(series.values, times), np.repeat(series.width, times))

    def early(self, series: Series, steps: int) -> Series:
        """Return the readings of the first steps of a series, at least one."""
        kept = max(1, int((self.rank(series) < steps).sum())) if self.skips else steps
        return Series(series.steps[:kept], series.values[:kept], series.width[:kept])

    def unbroken(self, series: Series) -> Series:
        """Return the longest part of a series without an unread step in between."""
        if not self.skips or not len(series):
            return series
        cuts = [0, *(np.flatnonzero(np.diff(self.rank(series)) > 1) + 1).tolist(), len(series)]
        begin, end = max(itertools.pairwise(cuts), key=lambda part: part[1] - part[0])
        return Series(series.steps[begin:end], series.values[begin:end], series.width[begin:end])

    @cached_property
    def optimizer(self) -> OptimizerFact | None:
        """The OPTIMIZER fact of the main optimizer, as last seen; None if there is none."""
        return self.run.known(OptimizerFact, stream=self.stream)

    @cached_property
    def optimizers(self) -> tuple[OptimizerFact, ...]:
        """The OPTIMIZER facts as last seen, one for each optimizer."""
        return self.run.known_each(OptimizerFact)

    @cached_property
    def groups(self) -> tuple[ParameterGroup, ...]:
        """The parameter groups of the main optimizer, as last seen; empty if there is none."""
        return self.optimizer.groups if self.optimizer is not None else ()

    @cached_property
    def decayed_norms(self) -> frozenset[str]:
        """Names of gains and offsets of normalisation layers that decay in the main optimizer."""
        return frozenset(self.optimizer.decayed_norms if self.optimizer is not None else ())

    @cached_property
    def precision(self) -> PrecisionFact:
        """The PRECISION fact, as last seen; without autocast and scaler if there is none."""
        return self.run.known(PrecisionFact) or PrecisionFact()

    @cached_property
    def optimizer_name(self) -> str:
        """Class name of the main optimizer."""
        if self.optimizer is not None and self.optimizer.type:
            return self.optimizer.type
        named = self.run.info.optimizers
        return named[self.stream] if self.stream < len(named) else "optimizer"

    @property
    def adaptive(self) -> bool:
        """Return True if the main optimizer's step does not depend on the scale of the gradient."""
        return any(word.lower() in self.optimizer_name.lower() for word in ADAPTIVE)

    @property
    def lr_class(self) -> str:
        """``adaptive`` or ``plain``, the keys of the tables of common learning rates."""
        return "adaptive" if self.adaptive else "plain"

    @cached_property
    def lr(self) -> float:
        """The first learning rate above zero; NaN if unknown."""
        rates = self.scalar("lr").finite().values
        positive = rates[rates > 0]
        if len(positive):
            return float(positive[0])
        if self.groups and (lr := self.groups[0].lr) is not None:
            return float(lr)
        return 0.0 if len(rates) else float("nan")

    @cached_property
    def terms(self) -> tuple[LossTerm, ...]:
        """Terms of the loss graphs, the newest of each optimizer."""
        return tuple(term for loss in self.run.known_each(LossFact) for term in loss.terms)

    @cached_property
    def loss_ops(self) -> tuple[str, ...]:
        """Operations in the loss graphs."""
        return tuple(op for _, loss in self.run.versions(LossFact) for op in loss.ops)

    @cached_property
    def facts_read(self) -> tuple[int, ...]:
        """Steps in which the facts of the loop were read and the loss was not as before: nearly all such steps."""
        return tuple(step for step, _ in self.run.versions(LossFact))

    def standing(self, field: Standing, last: int | None = None) -> list[str]:
        """Return the names that a list of the PARAMS fact has in every version, or in the ``last`` ones, in data-flow
        order.
        """
        versions = [set(getattr(params, field)) for _, params in self.run.versions(ParamsFact)]
        versions = versions[-last:] if last else versions
        names = set.intersection(*versions) if versions else set()
        return sorted(names, key=lambda name: (self.depth(owner(name)), name))

    def joined(self, field: Standing, lasting: int) -> Joined | None:
        """Return the names that came to a list of the PARAMS fact in mid-run, all at one reading, and have been on it
        since, for ``lasting`` steps at least; of several such readings the newest. None if there are none.
        """
        versions = [(step, set(getattr(params, field))) for step, params in self.run.versions(ParamsFact)]
        for at in range(len(versions) - 1, 0, -1):
            (since, before), until = versions[at - 1], versions[at][0]
            names = set.intersection(*(later for _, later in versions[at:])) - before
            since = max((step for step in self.facts_read if step < until), default=since)
            if names and (self.run.steps or 0) - until >= lasting:
                return Joined(sorted(names, key=lambda name: (self.depth(owner(name)), name)), since, until)
        return None

    @cached_property
    def param_names(self) -> list[str]:
        """All parameters of the watched models, in data-flow order."""
        return [f"{layer.path}.{p}" if layer.path else p for layer in self.ordered for p in layer.params]

    def depth(self, layer: str | None) -> int:
        """Return the position of a layer in data-flow order; unknown layers come last."""
        return self.layout.depth.get(layer or "", len(self.layout.layers))

    @cached_property
    def ordered(self) -> tuple[Layer, ...]:
        """Layers in data-flow order."""
        return tuple(sorted(self.layout.layers, key=lambda layer: self.depth(layer.path)))

    def follows(self, path: str, types: tuple[str, ...]) -> bool:
        """Return True if a layer is of one of these activation types, or a functional call of that name follows it."""
        layer = self.layout.by_path.get(path)
        if layer is not None and layer.type in types:
            return True
        return bool(self.layout.following_ops.get(path, frozenset()) & {name.lower() for name in types})

    @property
    def leaves(self) -> dict[str, BatchLeaf]:
        """Tensor inputs in the newest BATCH fact, by the name of the leaf; empty if there is no such fact."""
        batch = self.run.known(BatchFact)
        return batch.inputs if batch is not None else {}

    @cached_property
    def inputs(self) -> tuple[InputStats, ...]:
        """Statistics of the root model's input tensors, over their first 20 readings."""
        leaves = self.leaves
        found = []
        for row in self.layout.rows("input"):
            site = self.layout.sites[row]
            stats = {
                name: self.run.series(row, name).finite().values[:20] for name in ("mean", "std", "rms", "min", "max")
            }
            if not all(len(values) for values in stats.values()):
                continue
            middle = {name: float(np.median(values)) for name, values in stats.items()}
            leaf = leaves.get(site.name) or (next(iter(leaves.values())) if len(leaves) == 1 else BatchLeaf())
            low, high = leaf.column_std_min, leaf.column_std_max
            columns = (low, high) if low is not None and high is not None else None
            found.append(
                InputStats(
                    row, site.name, leaf.dtype or site.dtype, middle["mean"], middle["std"], middle["rms"],
                    middle["min"], middle["max"], None if leaf.image else columns,
                )
            )  # fmt: skip
        return tuple(found)


def owner(name: str) -> str:
    """Return the path of the layer that a parameter belongs to, from the parameter's name."""
    return name.rpartition(".")[0]
