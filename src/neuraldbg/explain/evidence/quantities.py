"""Numbers that every training has, for comparison with those of sound trainings: loss, gradients, updates, inputs,
targets, layers, evaluations. None of them is a fault by itself.

Each is positive and compared by its logarithm. Readings after the failure of a run are left out.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.explain.evidence import targets
from neuraldbg.explain.evidence.constant_guess import guessing_loss
from neuraldbg.nouns.facts.batches import BatchesFact
from neuraldbg.nouns.facts.evaluation_scores import EvaluationScoresFact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns import Series

ENOUGH = 8
"""Readings of a series from which its beginning is compared with its end."""
LAYERS = 48
"""Layers that are read at most: in a record of 100,000 steps by 500 layers all of them took 2 s of a diagnosis."""
EDGE = 10
"""Part of a series that is its beginning, and its end: a tenth."""


class Quantity(NamedTuple):
    """One number of a run, with its place."""

    id: str
    """Key of its wording and of its limits: ``input.offset``."""
    value: float
    layer: str | None = None
    """Path of the layer. None if it is of the whole run."""
    step: int | None = None
    """Step of the reading. None if it is of the whole run."""


class Words(NamedTuple):
    """The wording of a quantity; ``{}`` is its value."""

    said: str
    """Sentence without its full stop; a layer is added to it."""
    category: str
    """Category of the causes that such a value belongs to, as in ``Hypothesis.category``."""
    low: bool = True
    """Whether a small value is odd, too."""


WORDS = {
    "loss.above_guess": Words("the first loss is {} times that of the best constant guess", "loss"),
    "loss.course": Words("the loss ends at {} times its first value", "loss"),
    "loss.unchanged": Words("the loss is exactly that of the step before in a share of {}", "loop", low=False),
    "gradient.first": Words("the norm of the first gradient is {}", "loss"),
    "gradient.course": Words("the norm of the gradient ends at {} times that of its beginning", "optimisation"),
    "gradient.peak": Words("the largest norm of a gradient is {} times the median", "data", low=False),
    "gradient.layers": Words("the rms of its first gradient is {} of the largest of a layer", "architecture"),
    "update.first": Words(
        "the first update is {} of the weights (median over weight matrices)", "optimisation", low=False
    ),
    "update.typical": Words(
        "an update is {} of the weights (median over steps and matrices)", "optimisation", low=False
    ),
    "rate.span": Words("the largest learning rate is {} times the smallest above zero", "optimisation", low=False),
    "input.rms": Words("the root mean square of the inputs is {}", "data"),
    "input.offset": Words("the mean of the inputs is {} standard deviations away from zero", "data", low=False),
    "input.peak": Words("the largest input is {} standard deviations away from zero", "data", low=False),
    "input.columns": Words("a column of the inputs varies {} times as much as another", "data", low=False),
    "input.course": Words("the spread of the inputs ends at {} times that of the beginning", "data"),
    "input.evaluated": Words(
        "the mean of evaluated inputs is {} standard deviations away from that in training", "data", low=False
    ),
    "target.std": Words("the standard deviation of the targets is {}", "data"),
    "target.offset": Words("the mean of the targets is {} standard deviations away from zero", "data", low=False),
    "target.classes": Words("the entropy of the labels is {} of that of equally frequent classes", "data"),
    "activation.first": Words("the root mean square of its first outputs is {}", "architecture"),
    "activation.offset": Words(
        "the mean of its first outputs is {} standard deviations away from zero", "architecture", low=False
    ),
    "activation.course": Words(
        "its outputs end at {} times their root mean square of the beginning", "architecture", low=False
    ),
    "weight.gain": Words(
        "the rms of its first weights times the root of the number of its inputs is {}", "architecture"
    ),
    "weight.course": Words(
        "its weights end at {} times their root mean square of the beginning", "optimisation", low=False
    ),
    "evaluation.loss": Words("the loss of the last evaluation is {} times that of training", "data"),
}
"""Wording of each quantity."""


def quantities(case: Case) -> list[Quantity]:
    """Return the quantities of a run that were read and are above zero; of layers the smallest and the largest. A part
    of a strange record that cannot be read is left out.
    """
    found: list[Quantity] = []
    with np.errstate(all="ignore"):
        for read in (_loss, _gradients, _updates, _inputs, _targets, _layers, _evaluation) if len(case.history) else ():
            with contextlib.suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                found += [one for one in read(case) if math.isfinite(one.value) and one.value > 0]
    return found


def _before(case: Case, series: Series) -> Series:
    """Return the finite readings of a series up to the failure of the run, if it failed."""
    finite = series.finite()
    return finite if case.onset is None else finite.between(0, max(0, case.onset - 1))


def _edges(case: Case, series: Series) -> float:
    """Return the median of a series at its end over that of its beginning; NaN if there are few readings."""
    values = _before(case, case.held(series.finite())).values
    tenth = len(values) // EDGE
    if len(values) < ENOUGH or tenth < 1:
        return float("nan")
    begin = float(np.median(values[:tenth]))
    return float(np.median(values[-tenth:])) / begin if begin > 0 else float("nan")


def _rows(case: Case, kind: str, name: str) -> list[int]:
    """Return the sites of a kind and name, of many layers some that are evenly spaced, with the last one."""
    rows = [row for row in case.layout.rows(kind) if case.layout.sites[row].name == name]
    return rows[:: -max(1, -(-len(rows) // LAYERS))]


def _loss(case: Case) -> Iterator[Quantity]:
    loss, guess = case.loss, guessing_loss(case)
    values = loss.finite.values
    if not len(values):
        return
    first = int(loss.finite.steps[0])
    yield Quantity("loss.above_guess", loss.initial / guess if guess > 0 else float("nan"), step=first)
    if case.onset is None and loss.initial > 0:
        yield Quantity("loss.course", loss.last / loss.initial)
    if len(values) >= ENOUGH:
        yield Quantity("loss.unchanged", float(np.mean(np.diff(values) == 0)))


def _gradients(case: Case) -> Iterator[Quantity]:
    norms = _before(case, case.scalar("grad_norm"))
    if not len(norms):
        return
    yield Quantity("gradient.first", float(norms.values[0]), step=int(norms.steps[0]))
    yield Quantity("gradient.course", _edges(case, norms))
    if len(norms) >= ENOUGH:
        at = int(np.argmax(norms.values))
        median = float(np.median(norms.values))
        peak = float(norms.values[at]) / median if median > 0 else float("nan")
        yield Quantity("gradient.peak", peak, step=int(norms.steps[at]))
    firsts = {
        case.layout.sites[row].module: float(values[0])
        for row in _rows(case, "param_grad", "weight")
        if len(values := case.run.series(row, "rms").finite().values)
    }
    largest = max(firsts.values(), default=0.0)
    if len(firsts) > 1 and largest > 0:
        layer = min(firsts, key=lambda path: firsts[path])
        yield Quantity("gradient.layers", firsts[layer] / largest, layer)


def _updates(case: Case) -> Iterator[Quantity]:
    yield Quantity("update.first", case.first_update_ratio)
    yield Quantity("update.typical", case.typical_update_ratio)
    rates = case.scalar("lr").finite().values
    rates = rates[rates > 0]
    if len(rates):
        yield Quantity("rate.span", float(rates.max() / rates.min()))


def _inputs(case: Case) -> Iterator[Quantity]:
    floating = [one for one in case.inputs if not one.integer]
    for one in floating[:1]:
        yield Quantity("input.rms", one.rms)
        yield Quantity("input.course", _edges(case, case.run.series(one.row, "std")))
        if one.std > 0:
            yield Quantity("input.offset", abs(one.mean) / one.std)
            yield Quantity("input.peak", max(abs(one.low), abs(one.high)) / one.std)
        if one.columns is not None and one.columns[0] > 0:
            yield Quantity("input.columns", one.columns[1] / one.columns[0])
    for fact in case.run.known_each(BatchesFact):
        if fact.train is not None and fact.eval is not None and fact.floating and fact.train.std > 0:
            yield Quantity("input.evaluated", abs(fact.eval.mean - fact.train.mean) / fact.train.std)


def _targets(case: Case) -> Iterator[Quantity]:
    for slot in targets.slots(case)[:1]:
        if slot.entropy is not None and slot.classes > 1:
            yield Quantity("target.classes", slot.entropy / math.log(slot.classes))
        elif slot.mean is not None and slot.std > 0:
            yield Quantity("target.std", slot.std)
            yield Quantity("target.offset", abs(slot.mean) / slot.std)


def _layers(case: Case) -> Iterator[Quantity]:
    def ends(id_: str, of: dict[str, float]) -> Iterator[Quantity]:
        known = {path: value for path, value in of.items() if math.isfinite(value) and value > 0}
        for choose in (min, max) if known else ():
            layer = choose(known, key=lambda path: known[path])
            yield Quantity(id_, known[layer], layer or None)

    def each(kind: str, read: Callable[[Series], float], name: str = "", stat: str = "rms") -> dict[str, float]:
        return {case.layout.sites[row].module: read(case.run.series(row, stat)) for row in _rows(case, kind, name)}

    def first(series: Series) -> float:
        values = series.finite().values
        return float(values[0]) if len(values) else float("nan")

    yield from ends("activation.first", each("activation", first))
    means, spreads = (each("activation", first, stat=stat) for stat in ("mean", "std"))
    offsets = {path: abs(means[path]) / spreads[path] for path in means if spreads[path] > 0}
    yield from ends("activation.offset", offsets)
    yield from ends("activation.course", each("activation", lambda series: _edges(case, series)))
    yield from ends("weight.gain", {one.layer.path: one.gain for one in case.weights if not one.normed})
    yield from ends("weight.course", each("param", lambda series: _edges(case, series), "weight"))


def _evaluation(case: Case) -> Iterator[Quantity]:
    scores = case.run.known(EvaluationScoresFact)
    if scores is not None and scores.phases and case.loss.last > 0:
        last = scores.phases[-1]
        yield Quantity("evaluation.loss", last.loss / case.loss.last, step=last.step)
