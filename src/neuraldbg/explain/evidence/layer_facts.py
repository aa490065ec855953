"""What the facts about norms, units, attention and outputs tell, as causes of architecture need it. No judgement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.explain.evidence.symptom import guessing_loss
from neuraldbg.nouns import FactKey
from neuraldbg.nouns.facts.modes import ModesFact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.explain.evidence.case import Case


@dataclass(frozen=True)
class Reading:
    """One entry of a fact, and the step at which it was read."""

    step: int
    of: dict[str, Any]

    def number(self, field: str) -> float:
        """Return a number of the entry, NaN if it has none."""
        value = self.of.get(field)
        return float(value) if isinstance(value, (int, float)) else float("nan")


def readings(case: Case, key: FactKey, field: str, by: str) -> dict[str, list[Reading]]:
    """Return the entries of a listing fact by what they are about, oldest first; those after a NaN are left out."""
    end = case.origin.step if case.origin is not None else None
    found: dict[str, list[Reading]] = {}
    for fact in case.run.facts_of(key.value):
        if end is not None and fact.step >= end:
            continue
        for entry in fact.value.get(field) or ():
            found.setdefault(str(entry.get(by)), []).append(Reading(fact.step, entry))
    return found


def norms(case: Case) -> dict[str, list[Reading]]:
    """Return what was read of each batch-norm layer."""
    return readings(case, FactKey.NORMS, "layers", "layer")


def training_norms(case: Case) -> dict[str, list[Reading]]:
    """Return those readings in which a layer was in training mode."""
    found = {layer: [r for r in seen if r.of.get("training")] for layer, seen in norms(case).items()}
    return {layer: seen for layer, seen in found.items() if seen}


def late(seen: Iterable[Reading], field: str, since: int) -> float:
    """Return the median of a number over the readings from a step on, NaN if there is none."""
    values = [r.number(field) for r in seen if r.step >= since]
    known = [value for value in values if np.isfinite(value)]
    return float(np.median(known)) if known else float("nan")


def evaluated(case: Case) -> bool:
    """Return True if the program evaluates: passes without gradients between the steps."""
    return bool((case.scalar("evals").values > 0).any())


def dropout_rates(case: Case) -> dict[str, float]:
    """Return the dropout that was at work: probability by layer, or by the layer that a functional one feeds."""
    still = {path for _, modes in case.run.versions(ModesFact) for path in modes.eval_layers}
    found: dict[str, float] = {}
    for layer in case.ordered:
        if layer.path not in case.layout.called or layer.path in still:
            continue
        p = layer.settings.get("p") if "Dropout" in layer.type else None
        if isinstance(p, (int, float)) and not isinstance(p, bool):
            found[layer.path] = float(p)
    for fact in case.run.facts_of(FactKey.DROPOUT.value):
        for place in fact.value.get("places") or ():
            before = str(place.get("before"))
            if before not in found:
                found[before] = max(float(place.get("p", 0.0)), found.get(before, 0.0))
    return found


@dataclass(frozen=True)
class Variety:
    """How much one tensor varied over the batch at one step; see the OUTPUTS fact."""

    step: int
    shape: tuple[int, ...]
    across: float
    scale: float
    alike: float
    log_z: float


@dataclass(frozen=True)
class Call:
    """One call of a model or part at a step."""

    step: int
    part: str
    inputs: tuple[Variety, ...]
    outputs: tuple[Variety, ...]


def calls(case: Case) -> list[Call]:
    """Return the calls whose inputs and outputs were read, in order; those after a NaN are left out."""
    end = case.origin.step if case.origin is not None else None
    return [
        Call(
            fact.step,
            str(fact.value.get("part")),
            _varieties(fact.step, fact.value.get("inputs") or ()),
            _varieties(fact.step, fact.value.get("outputs") or ()),
        )
        for fact in case.run.facts_of(FactKey.OUTPUTS.value)
        if end is None or fact.step < end
    ]


def _varieties(step: int, entries: Iterable[dict[str, Any]]) -> tuple[Variety, ...]:
    found = []
    for entry in entries:
        numbers = [entry.get(name) for name in ("across", "scale", "alike", "log_z")]
        known = [float(v) if isinstance(v, (int, float)) else float("nan") for v in numbers]
        across, scale, alike, log_z = known
        found.append(Variety(step, tuple(entry.get("shape") or ()), across, scale, alike, log_z))
    return tuple(found)


def above_guess(case: Case) -> float:
    """Return where the loss ended, as a share of the loss of a constant guess; NaN if that is not known."""
    guess = guessing_loss(case)
    return case.loss.last / guess if guess > 0 and len(case.loss.finite) else float("nan")


def resting(case: Case, scale: float) -> bool:
    """Return True if the loss fell by less than a thirtieth of a scale over the last quarter of enough steps."""
    y = case.loss.finite.values
    quarter = len(y) // 4
    if quarter < 20:
        return False
    return bool(float(np.median(y[-2 * quarter : -quarter]) - np.median(y[-quarter:])) < scale / 30)
