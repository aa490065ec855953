"""Readings of the targets of a loss, shared by the causes that judge targets: facts enter, plain values leave."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.evidence import training_loop
from neuraldbg.explain.evidence.wording import number
from neuraldbg.nouns.facts.loss import LossFact, LossTerm
from neuraldbg.nouns.facts.targets import TargetsFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Weighing

REGRESSION = ("mse", "l1", "smooth_l1", "huber", "squared_error")
WEIGHTED = ("Linear", "Conv", "Lazy", "Bilinear")
"""Words in the type names of layers with weights, whose output can be scores."""

OTHERS = 40
"""Samples outside the main class below which a kernel regression finds only strong relations."""


def slots(case: Case) -> list[TargetsFact]:
    """Return the newest TARGETS fact of each loss."""
    return sorted(case.run.known_each(TargetsFact), key=lambda one: one.slot)


def readings(case: Case) -> list[tuple[int, LossTerm]]:
    """Return every term of every loss graph that was read, with its step."""
    return [(step, term) for step, loss in case.run.versions(LossFact) for term in loss.terms]


def alike(case: Case, term: LossTerm) -> list[LossTerm]:
    """Return all readings of a term: those of the same kind, layer and chain of operations."""
    wanted = term.kind, term.layer, term.chain
    return [t for _, t in readings(case) if (t.kind, t.layer, t.chain) == wanted]


def term_of(case: Case, slot: TargetsFact) -> LossTerm | None:
    """Return the loss term that a slot's targets belong to; None if it is ambiguous."""
    kinds = ("nll", "cross_entropy") if slot.kind == "nll" else (slot.kind,)
    found = [t for t in case.terms if t.kind in kinds and not t.soft]
    return found[0] if len(found) == 1 else None


def layer_of(case: Case, slot: TargetsFact) -> str | None:
    """Return the last layer before the loss term of a slot's targets; None if the term is ambiguous."""
    term = term_of(case, slot)
    return term.layer if term is not None else None


def supervised(case: Case, slot: TargetsFact) -> LossTerm | None:
    """Return the term of a slot if its loss compares the output of a layer with weights directly with given targets;
    else None.

    Losses that make their targets themselves are left out: contrastive ones, a queue of negatives, a critic.
    """
    term = term_of(case, slot)
    if term is None or not term.direct or not slot.alone or not slot.single:
        return None
    if not case.alone or len(case.terms) != 1 or slot.stream not in (None, case.stream):
        return None
    layer = case.layout.by_path.get(term.layer) if term.layer is not None else None
    if layer is None or not any(word in layer.type for word in WEIGHTED):
        return None
    return term


def one_sided(slot: TargetsFact) -> bool:
    """Return True if the kept samples have too few outside the main class for a regression from the inputs."""
    rows = [row.labels for row in slot.predicted.classes.values()] if slot.predicted is not None else []
    share = 1 - max(rows) / sum(rows) if sum(rows) else 1.0
    return share * (slot.fit.samples if slot.fit is not None else 0) < OTHERS and bool(rows)


def head(term: LossTerm) -> str:
    """Return the last operation before a loss, the first of its chain; empty if there is none."""
    return term.chain[0] if term.chain else ""


def applied_by(case: Case, term: LossTerm, name: str) -> str | None:
    """Return the module that applies an operation between the last weights and the loss, else the layer of the weights.

    An operation that is called as a function has no module of its own.
    """
    for edge in case.layout.edges:
        found = case.layout.by_path.get(edge.target)
        if edge.source == term.layer and not edge.ops and found is not None and found.type.lower() == name:
            return found.path
    return term.layer


def raised(case: Case, *texts: str) -> str:
    """Return the exception that ended the script in one line, if one of these texts is in it; else empty."""
    message = training_loop.raised(case)
    return training_loop.brief(message) if message and any(text in message for text in texts) else ""


def below(case: Case, weigh: Weighing, floor: float, because: str) -> None:
    """Weigh the lowest level of the only loss against a floor that it could not pass if the fault were there."""
    if len(case.terms) != 1 or case.terms[0].reduction != "mean" or not len(case.loss.finite):
        return
    if case.terms[0].sign == -1 or not math.isfinite(floor):
        return
    best = case.loss.best
    if best < floor - 0.02:
        weigh.against(f"the loss fell to {case.loss.lowest}, below what {because}", 4.0, best, floor)
    else:
        said = f"the loss never went below {number(floor)}, the floor for {because}: its lowest level was"
        weigh.speaks(f"{said} {case.loss.lowest}", 0.5, best, floor)


def one_class(slot: TargetsFact) -> bool:
    """Return True if each batch has hardly more than one class, in a run with several."""
    if slot.batch_entropy is None or slot.entropy is None:
        return False
    return slot.batch_entropy < 0.15 * slot.entropy


def head_code(term: LossTerm) -> str:
    """Return the words for the output of the last layer before a loss term."""
    return f"the output of {term.layer!r}" if term.layer else "the last linear layer's output"
