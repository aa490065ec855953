"""The score of a constant guess: the loss of a model that knows no input, and whether a training is no better.

The loss graph and the targets that were read enter; the loss of the best constant answer leaves: ln C, ln 2, the
targets' variance, the entropy of the labels.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.loss_curve import ENOUGH
from neuraldbg.nouns.facts.accumulation import AccumulationFact
from neuraldbg.nouns.facts.loss import LossFact
from neuraldbg.nouns.facts.targets import TargetsFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.record_readings import RecordReadings

NAMED = ("cross_entropy", "nll", "bce", "bce_with_logits", "mse")
"""Loss functions of torch whose formulas have no multiplication."""
NEAR_GUESS = 0.95
"""Share of the loss of a constant guess above which nothing was learnt."""
LEARNT = 0.85
"""Share of the loss of a constant guess below which something was learnt."""
ALIKE = 0.2
"""Logarithm of the ratio of two estimates of the targets' variance up to which they are of the same targets."""
CERTAIN, SURELY = 5.0, 3.0
"""Standard deviations by which a regression of the targets from the inputs, and a loss below that of a constant guess,
must be beyond chance to show that something weak was learnt."""


def guessing_loss(run: RecordReadings) -> float:
    """Return the loss of a constant guess, from the loss graph: ln C, ln 2, the targets' variance; NaN if unknown.

    The losses of micro-batches are recorded after the program divided them by their number, so the guess is divided,
    too.
    """
    if run.loss_ops[:1] == ("mul",) and len(run.terms) == 1 and run.terms[0].kind in NAMED:
        return float("nan")  # a loss function times a factor, as a scale for half precision or a weight
    known = run.run.known(AccumulationFact, stream=run.stream)
    return _guess_of_terms(run) / max(known.divisor if known is not None else 1.0, 1.0)


def _guess_of_terms(run: RecordReadings) -> float:
    for term in run.terms:
        if term.reduction != "mean":
            continue
        if term.kind in ("cross_entropy", "nll") and term.classes > 1:
            return math.log(term.classes)
        if term.kind in ("bce", "bce_with_logits"):
            return math.log(2.0)
        if term.kind in ("mse", "squared_error"):
            return _variance(run, term.kind)
    return float("nan")


def _variance(run: RecordReadings, kind: str) -> float:
    """Return the targets' variance, median over the batches that were read; NaN if unknown."""
    terms = [term for _, loss in run.run.versions(LossFact) for term in loss.terms]
    found = [term.target.std for term in terms if term.kind == kind and term.target is not None]
    known = [std**2 for std in found if std is not None and math.isfinite(std)]
    typical = statistics.median(known) if known else float("nan")
    # Over all batches that were read it is known better, unless the targets came in other units at some time.
    every = _regressed(run)
    if every is not None and typical > 0 and abs(math.log(max(every.std, 1e-300) ** 2 / typical)) < ALIKE:
        return every.std**2
    return typical


def _regressed(run: RecordReadings) -> TargetsFact | None:
    """Return what is known of the targets of the run's only loss, numbers; None if there are others."""
    known = [one for one in run.run.known_each(TargetsFact) if one.alone and one.mean is not None]
    return known[0] if len(known) == 1 else None


def at_guess(run: RecordReadings) -> bool:
    """Return True if the loss settled at that of a constant guess: nothing was learnt from the inputs.

    A large first loss (huge inputs or weights) that falls to this level looks like learning and is none.
    """
    loss, guess = run.loss, guessing_loss(run)
    # A sum of several terms may settle above the guess of one that was learnt.
    if not guess > 0 or len(loss.finite) < ENOUGH or not loss.alone or len(run.terms) > 1:
        return False
    # A weak relation (an R2 of 0.1) counts as learnt: the level is taken over half the run, with its standard error.
    half = loss.finite.values[len(loss.finite) // 2 :]
    error = min(loss.noise / math.sqrt(len(half)), 0.1 * guess)
    level = float(np.median(half))
    near = level > NEAR_GUESS * guess - error and loss.best > (NEAR_GUESS - 0.05) * guess - error
    return near and not loss.still_falling and not _weakly_learnt(run, level / guess, error / guess)


def _weakly_learnt(run: RecordReadings, level: float, error: float) -> bool:
    """Return True if the inputs hardly predict the targets, and the model has learnt what little they do. ``level`` is
    the loss over that of a constant guess, ``error`` its standard error.
    """
    known = _regressed(run)
    fit = known.fit if known is not None else None
    if fit is None or fit.z < CERTAIN or not 0 < fit.score < 1 - LEARNT:
        return False
    return 1 - level > max(fit.score / 2, SURELY * error)


def label_entropy(run: RecordReadings) -> float:
    """Return the loss of the best constant guess of classes, the entropy of the labels; NaN if unknown."""
    known = [one for one in run.run.known_each(TargetsFact) if one.entropy is not None and one.classes > 1]
    if len(known) != 1 or len(run.terms) != 1 or run.terms[0].weighted:
        return float("nan")
    divisor = run.run.known(AccumulationFact, stream=run.stream)
    return (known[0].entropy or 0.0) / max(divisor.divisor if divisor is not None else 1.0, 1.0)
