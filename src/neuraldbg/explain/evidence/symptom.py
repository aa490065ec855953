"""What went wrong as a person would see it, before any cause is thought of."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.loss_curve import ENOUGH, FEW
from neuraldbg.explain.evidence.wording import number, plural
from neuraldbg.nouns.facts.accumulation import AccumulationFact
from neuraldbg.nouns.facts.loss import LossFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case

KINDS = {
    "nonfinite": "nonfinite_loss",
    "diverged": "loss_divergence",
    "still": "unchanged_parameters",
    "stuck": "loss_plateau",
    "slow": "loss_plateau",
}
"""The event kind that each trouble corresponds to."""
NAMES = {
    "nonfinite": "NaN or infinite loss",
    "diverged": "loss divergence",
    "still": "training without effect",
    "stuck": "stalled learning",
    "slow": "slow learning",
}
"""What each trouble is called in a sentence."""
NAMED = ("cross_entropy", "nll", "bce", "bce_with_logits", "mse")
"""Loss functions of torch, under which no multiplication is a part of the formula."""
NEAR_GUESS = 0.95
"""Share of the loss of guessing above which nothing was learnt."""
LEARNT = 0.85
"""Share of the loss of guessing below which something was learnt."""
LOST = 30
"""Steps at the level of guessing after which what was learnt is lost."""
WINDOW = 5
"""Steps over which the level is taken."""
LEARNT_ALREADY = 0.5
"""A loss that begins below this share of the loss of guessing belongs to a model that was trained before."""


@dataclass(frozen=True)
class Trouble:
    """The worst thing that happened to the training."""

    kind: str
    """``nonfinite``, ``diverged``, ``still`` (no weight ever changed), ``stuck``, ``slow``, ``none``, ``unclear``,
    ``short`` or ``unseen``."""
    step: int | None = None
    phrase: str = ""
    """What a person would have seen, without a full stop; empty for none."""
    guess: bool = False
    """Whether a regression rests at the level of a constant guess: a fault, or inputs that do not tell the targets."""

    @property
    def name(self) -> str:
        """The failure as a noun phrase; empty for none."""
        return NAMES.get(self.kind, "")

    @property
    def broke(self) -> bool:
        """Return True if the training broke."""
        return self.kind in ("nonfinite", "diverged")

    @property
    def any(self) -> bool:
        """Return True if anything went wrong."""
        return self.kind in KINDS


def guessing_loss(case: Case) -> float:
    """Return the loss of a constant guess, from the loss graph: ln C, ln 2, the targets' variance; NaN if unknown.

    Micro-batches that are divided by their number are recorded as they are, so the guess is divided too.
    """
    if case.loss_ops[:1] == ("mul",) and len(case.terms) == 1 and case.terms[0].kind in NAMED:
        return float("nan")  # a loss function times a factor, as a scale for half precision or a weight
    known = case.run.known(AccumulationFact, stream=case.stream)
    return _guess_of_terms(case) / max(known.divisor if known is not None else 1.0, 1.0)


def _guess_of_terms(case: Case) -> float:
    for term in case.terms:
        if term.reduction != "mean":
            continue
        if term.kind in ("cross_entropy", "nll") and term.classes > 1:
            return math.log(term.classes)
        if term.kind in ("bce", "bce_with_logits"):
            return math.log(2.0)
        if term.kind in ("mse", "squared_error"):
            return _variance(case, term.kind)
    return float("nan")


def _variance(case: Case, kind: str) -> float:
    """Return the targets' variance, median over the batches that were read; NaN if unknown."""
    terms = [term for _, loss in case.run.versions(LossFact) for term in loss.terms]
    found = [term.target.std for term in terms if term.kind == kind and term.target is not None]
    known = [std**2 for std in found if std is not None and math.isfinite(std)]
    return statistics.median(known) if known else float("nan")


@dataclass(frozen=True)
class Relapse:
    """A loss that had fallen and went back to that of guessing, for long."""

    step: int
    steps: int
    low: float


def relapse(case: Case) -> Relapse | None:
    """Return where a classification lost all it had learnt; None where it did not."""
    guess, y, at = guessing_loss(case), case.loss.finite.values, case.loss.finite.steps
    kinds = {term.kind for term in case.terms}
    if not guess > 0 or not case.alone or len(case.terms) != 1 or not kinds <= {"cross_entropy", "nll"}:
        return None
    if len(y) < 3 * LOST:
        return None
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(y, WINDOW), axis=1)
    down = np.flatnonzero(smooth < LEARNT * guess)
    if not len(down):
        return None
    up = smooth[down[0] :] > NEAR_GUESS * guess
    edges = np.flatnonzero(np.diff(np.concatenate([[0], up.astype(np.int8), [0]])))
    spells = [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    first, last = max(spells, key=lambda spell: spell[1] - spell[0], default=(0, 0))
    if last - first < max(LOST, len(y) // 5):
        return None
    begin = int(down[0]) + first
    return Relapse(int(at[begin]), last - first, float(smooth[down[0] : begin].min()))


def at_guess(case: Case) -> bool:
    """Return True if the loss came to rest at the level of a constant guess: nothing was learnt from the inputs.

    A large first loss (huge inputs or weights) that falls to this level looks like learning and is none.
    """
    loss, guess = case.loss, guessing_loss(case)
    # A sum of several terms may rest above the guess of one that was learnt.
    if not guess > 0 or len(loss.finite) < ENOUGH or not loss.alone or len(case.terms) > 1:
        return False
    # A weak relation (an R2 of 0.1) is one: the level is taken over half the run, with its standard error.
    half = loss.finite.values[len(loss.finite) // 2 :]
    error = min(loss.noise / math.sqrt(len(half)), 0.1 * guess)
    near = float(np.median(half)) > NEAR_GUESS * guess - error and loss.best > (NEAR_GUESS - 0.05) * guess - error
    return near and not loss.still_falling


def find_trouble(case: Case) -> Trouble:
    """Return the worst trouble over all optimizers of the run."""
    origin = case.origin
    for stream in case.run.streams:
        loss = case.loss_of(stream)
        if loss.ends_nonfinite:
            step = loss.nonfinite_from
            value = _bad_value(case, step)
            return Trouble("nonfinite", step, f"the loss became {value} at step {step}")
    if origin is not None and _ruined(case):
        return Trouble("nonfinite", origin.step, f"weights or gradients became NaN or infinite at step {origin.step}")
    for stream in case.run.streams:
        loss = case.loss_of(stream)
        if loss.diverged:
            begun = number(loss.initial)
            if loss.best < 0.95 * loss.initial:
                begun = loss.lowest
            peak = [f"at most {number(loss.peak)}"] if loss.peak > 10 * abs(loss.last) else []
            return Trouble("diverged", loss.diverged_from, f"the loss rose from {begun} to {loss.ended(*peak)}")
    if _still(case):
        steps = plural(case.run.steps or len(case.history), "step")
        return Trouble("still", int(case.history.steps[0]), f"no weight changed in {steps}")
    return _course(case)


def _still(case: Case) -> bool:
    """Return True if every weight of the models stayed as it was: their statistics are the same to the last digit."""
    history, sites = case.history, case.run.layout.sites
    rows = [i for i, site in enumerate(sites[: history.sites]) if site.kind == "param"]
    elsewhere = any(one.foreign > one.foreign_no_grad for one in case.optimizers)
    if not rows or len(history) < FEW or elsewhere or case.loss.learned:  # an image or a latent code is trained
        return False
    values = [history.stat(rows, name) for name in ("mean", "rms", "min", "max")]
    seen = [value[np.isfinite(value).all(axis=1)] for value in values]
    return all(len(value) >= FEW and bool((value == value[:1]).all()) for value in seen)


def _course(case: Case) -> Trouble:
    """Judge whether the main loss goes anywhere."""
    loss = case.loss
    if not len(loss):
        return Trouble("unseen")
    guess = guessing_loss(case)
    if not loss.learned and loss.last < LEARNT_ALREADY * guess:
        return Trouble("none")
    fell = "hardly fell" if loss.last < loss.initial else "did not fall"
    span = f"{fell} in {plural(case.run.steps or len(loss), 'step')}, from {number(loss.initial)} to {loss.ending}"
    if loss.stuck and loss.finite.values.min() >= 0:
        return Trouble("stuck", int(loss.series.steps[0]), f"the loss {span}")
    if loss.slow and loss.finite.values.min() >= 0:
        return Trouble("slow", int(loss.series.steps[0]), f"the loss {span}")
    if at_guess(case) and not loss.diverged:
        said = f"the loss came to rest at {loss.ending}, hardly better than a constant guess ({number(guess)})"
        weak = any(term.kind in ("mse", "squared_error") for term in case.terms)
        return Trouble("stuck", int(loss.series.steps[0]), said, guess=weak)
    if loss.learned or not loss.alone:
        return Trouble("none")
    return Trouble("short" if len(loss) < FEW else "unclear")


def _bad_value(case: Case, step: int | None) -> str:
    value = case.loss.series.at(step) if step is not None else float("nan")
    return "infinite" if math.isinf(value) else "NaN"


def _ruined(case: Case) -> bool:
    """Return True if weights or gradients were non-finite when the run ended."""
    history, sites = case.history, case.run.layout.sites
    rows = [i for i, site in enumerate(sites[: history.sites]) if site.kind in ("param", "param_grad", "loss")]
    if case.scaled:
        rows = [i for i in rows if sites[i].kind == "param"]
    return bool(rows) and bool((history.stat(rows, "nonfinite")[history.read][-1:] > 0).any())
