"""Readings of the facts about norms, dropout and outputs, shared by the causes of architecture. No judgement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np

from neuraldbg.explain.evidence.constant_guess import guessing_loss
from neuraldbg.nouns.facts.dropout import DropoutFact
from neuraldbg.nouns.facts.modes import ModesFact
from neuraldbg.nouns.facts.norms import NormsFact
from neuraldbg.nouns.facts.operations import OperationsFact
from neuraldbg.nouns.facts.outputs import OutputsFact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns.facts.known import Known
    from neuraldbg.nouns.facts.norms import NormLayer

K = TypeVar("K", bound="Known")
E = TypeVar("E")


@dataclass(frozen=True)
class Reading(Generic[E]):
    """A fact, or one entry of a fact, with the step at which it was read."""

    step: int
    of: E


Call: TypeAlias = Reading[OutputsFact]
"""One call of a model, or of a part of one, whose inputs and outputs were read."""


def sound(case: Case, kind: type[K]) -> list[Reading[K]]:
    """Return the versions of a fact, oldest first; those after a NaN are left out."""
    end = case.origin.step if case.origin is not None else None
    return [Reading(step, fact) for step, fact in case.run.versions(kind) if end is None or step < end]


def readings(
    case: Case, kind: type[K], entries: Callable[[K], Iterable[E]], name: Callable[[E], str]
) -> dict[str, list[Reading[E]]]:
    """Return the entries of a fact that is a list, grouped by name, oldest first; those after a NaN are left out."""
    found: dict[str, list[Reading[E]]] = {}
    for version in sound(case, kind):
        for entry in entries(version.of):
            found.setdefault(name(entry), []).append(Reading(version.step, entry))
    return found


def as_number(value: float | None) -> float:
    """Convert a number to a float, None to NaN."""
    return float("nan") if value is None else float(value)


def norms(case: Case) -> dict[str, list[Reading[NormLayer]]]:
    """Return the readings of each batch-norm layer, by its path."""
    return readings(case, NormsFact, lambda fact: fact.layers, lambda entry: entry.layer)


def training_norms(case: Case) -> dict[str, list[Reading[NormLayer]]]:
    """Return the readings of batch-norm layers in training mode, by path."""
    found = {layer: [r for r in seen if r.of.training] for layer, seen in norms(case).items()}
    return {layer: seen for layer, seen in found.items() if seen}


def late_gap(seen: Iterable[Reading[NormLayer]], since: int) -> float:
    """Return the median of ``mean_gap`` over the readings from a step on; NaN if there is none."""
    values = [as_number(r.of.mean_gap) for r in seen if r.step >= since]
    known = [value for value in values if np.isfinite(value)]
    return float(np.median(known)) if known else float("nan")


def evaluated(case: Case) -> bool:
    """Return True if the program evaluates a model: passes without gradients between the steps."""
    return bool((case.scalar("evals").values > 0).any())


def dropout_rates(case: Case) -> dict[str, float]:
    """Return the active dropout: probability by dropout layer, or by the layer that gets a functional dropout's
    output.
    """
    still = {path for _, modes in case.run.versions(ModesFact) for path in modes.eval_layers}
    found: dict[str, float] = {}
    for layer in case.ordered:
        if layer.path not in case.layout.called or layer.path in still:
            continue
        p = layer.settings.get("p") if "Dropout" in layer.type else None
        if isinstance(p, (int, float)) and not isinstance(p, bool):
            found[layer.path] = float(p)
    for _, fact in case.run.versions(DropoutFact):
        for place in fact.places:
            found.setdefault(place.before, place.p)
    return found


def calls(case: Case) -> list[Call]:
    """Return the calls whose inputs and outputs were read, in order; those after a NaN are left out."""
    return sound(case, OutputsFact)


def operations_into(case: Case) -> dict[str, tuple[str, ...]]:
    """Return the operations of the loss graphs, by the layer that gets their result."""
    fact = case.run.known(OperationsFact)
    return fact.into if fact is not None else {}


def above_guess(case: Case) -> float:
    """Return the last level of the loss over the loss of a constant guess; NaN if unknown."""
    guess = guessing_loss(case)
    return case.loss.last / guess if guess > 0 and len(case.loss.finite) else float("nan")


def resting(case: Case, scale: float) -> bool:
    """Return True if the loss fell by less than a thirtieth of a scale over the last quarter of enough steps."""
    y = case.loss.finite.values
    quarter = len(y) // 4
    if quarter < 20:
        return False
    return bool(float(np.median(y[-2 * quarter : -quarter]) - np.median(y[-quarter:])) < scale / 30)
