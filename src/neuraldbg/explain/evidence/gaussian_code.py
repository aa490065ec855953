"""Readings of a variational autoencoder: its code, and the weights of the terms of its loss. No judgement.

For each unit of the code the model returns the mean and the (log) variance of a normal distribution. The evidence lower
bound (Kingma and Welling 2014) weighs the divergence of one unit like the log-likelihood of one element of the
reconstruction. The squared error of one element is that log-likelihood times twice the variance that the Gaussian is
given.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.nouns.facts.loss import LossFact
from neuraldbg.nouns.facts.loss_branches import LossBranchesFact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.layer_facts import Call
    from neuraldbg.nouns.facts.loss import LossTerm
    from neuraldbg.nouns.facts.outputs import Variety

RECONSTRUCTIONS = ("binarycrossentropy", "mseloss", "l1loss", "smoothl1loss", "huberloss", "nllloss")
"""Beginnings of the names of the operations that compare an output with a target."""
SQUARES = ("mse", "squared_error")
LIKELIHOODS = ("bce", "bce_with_logits", *SQUARES)
"""Kinds of terms whose elements are log-likelihoods, or squares of errors."""
UNEXPLAINED = 0.1
"""Share of the variance of the data that a Gaussian is given. Units of the code are used from the variance of their
direction in the data on (Lucas et al. 2019, "Don't Blame the ELBO!"), which for the first is at least the mean."""

REWEIGHED = 1.2
"""Factor from the first reading to the last from which the weight of the reconstruction grows, as with a variance that
is learned or a divergence that is annealed: a code becomes active as it does."""


@dataclass(frozen=True)
class Code:
    """The reading of a code in one call."""

    call: Call
    mean: Variety
    spread: Variety
    """The variances, standard deviations or their logarithms."""

    @property
    def step(self) -> int:
        """Step of the call."""
        return self.call.step


def codes(calls: Iterable[Call]) -> dict[tuple[str, str], list[Code]]:
    """Return the readings of each code, by the part that returns it and its place among the outputs."""
    found: dict[tuple[str, str], list[Code]] = {}
    for call in calls:
        for mean, spread in _pairs(call):
            found.setdefault((call.of.part, mean.leaf), []).append(Code(call, mean, spread))
    return found


def _pairs(call: Call) -> Iterable[tuple[Variety, Variety]]:
    """Return the outputs that may be mean and variance: two of one shape, behind a reconstruction of the input."""
    if len(call.of.outputs) < 3 or not call.of.inputs:
        return
    first, given = call.of.outputs[0].shape, call.of.inputs[0].shape
    if first[:1] != given[:1] or math.prod(first) != math.prod(given):  # images may leave as vectors
        return
    rest = [v for v in call.of.outputs[1:] if len(v.shape) == 2]
    for one, two in itertools.pairwise(rest):
        if one.shape == two.shape and one.shape != first:
            yield one, two


@dataclass(frozen=True)
class Balance:
    """The weights of reconstruction and divergence in a loss, for one element of each."""

    term: LossTerm
    """The reconstruction."""
    divergence: float
    """Derivative of the loss by the divergence of one unit of one sample."""
    reconstruction: float
    """Derivative of the loss by the negative log-likelihood of one element."""
    grown: float = 1.0
    """Factor by which the weight of the reconstruction beside that of the divergence grew over the run."""

    @property
    def times(self) -> float:
        """The weight of the divergence over the one that it has in the ELBO."""
        return self.divergence / self.reconstruction


def balance(case: Case, code: Code) -> Balance | None:
    """Return the weights of both terms of the loss, None if they were not read."""
    size = math.prod(code.call.of.outputs[0].shape)
    found: list[Balance] = []
    for _, loss in case.run.versions(LossFact):
        terms = [t for t in loss.terms if t.kind in LIKELIHOODS and t.weight and math.prod(t.input_shape) == size]
        if len(terms) == 1 and loss.gaussian_kl == 1 and loss.kl_weight:
            share = 1.0
            if terms[0].kind in SQUARES:
                share = 2 * UNEXPLAINED * code.call.of.inputs[0].across ** 2
            if share > 0 and terms[0].weight is not None and terms[0].weight > 0 and loss.kl_weight > 0:
                found.append(Balance(terms[0], loss.kl_weight, share * terms[0].weight))
    if not found:
        return None
    grown = found[0].times / found[-1].times
    found.sort(key=lambda one: one.times)
    return replace(found[len(found) // 2], grown=grown)


def drowned(case: Case) -> list[tuple[int, float]]:
    """Return the ratio of the divergence's gradient to that of the reconstruction, by step; empty if it is not known.

    Of several pairs of terms the one whose least ratio is the largest counts.
    """
    pairs: dict[str, list[tuple[int, float]]] = {}
    for step, fact in case.run.versions(LossBranchesFact):
        plain = [i for i in (0, 1) if fact.names[i].startswith(RECONSTRUCTIONS)]
        if len(plain) == 1 and fact.norms[plain[0]] > 0:
            ratio = fact.norms[1 - plain[0]] / fact.norms[plain[0]]
            pairs.setdefault(fact.pair, []).append((step, ratio))
    several = [ratios for ratios in pairs.values() if len(ratios) > 2]
    return max(several, key=lambda ratios: min(value for _, value in ratios), default=[])


def came_alive(case: Case, code: Code, size: float) -> bool:
    """Return True if the layer of the means gives larger ones than ``size`` at its last reading: it is read more often
    than the outputs of the model.
    """
    layout, width = case.layout, code.mean.shape[-1]
    for row, site in enumerate(layout.sites):
        layer = layout.by_path.get(site.module)
        if site.kind != "activation" or layer is None or row >= case.history.sites:
            continue
        if layer.settings.get("out_features") != width:
            continue
        values = case.run.series(row, "rms").finite()
        then = values.at(code.step)
        if np.isfinite(then) and abs(then - code.mean.scale) < 0.5 * code.mean.scale and values.values[-1] > size:
            return True
    return False
