"""Readings of what a loss is asked for, shared by the causes that judge targets: facts enter, plain values leave."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from neuraldbg.explain.evidence.wording import number
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Weighing

REGRESSION = ("mse", "l1", "smooth_l1", "huber", "squared_error")
WEIGHTED = ("Linear", "Conv", "Lazy", "Bilinear")
"""Types of layers that make scores, by how their name begins or contains it."""

OTHERS = 40
"""Samples of other classes than the main one below which a kernel regression finds nothing but strong relations."""


def slots(case: Case) -> list[dict[str, Any]]:
    """Return the newest TARGETS fact of each loss."""
    latest = {int(f.value.get("slot", 0)): f.value for f in case.run.facts_of(FactKey.TARGETS.value)}
    return [latest[slot] for slot in sorted(latest)]


def readings(case: Case) -> list[tuple[int, dict[str, Any]]]:
    """Return (step, term) of every loss graph that was read."""
    return [(f.step, t) for f in case.run.facts_of(FactKey.LOSS.value) for t in f.value.get("terms") or ()]


def alike(case: Case, term: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all readings of a term: those of its kind and layer."""
    return [t for _, t in readings(case) if all(t.get(k) == term.get(k) for k in ("kind", "layer", "chain"))]


def term_of(case: Case, slot: dict[str, Any]) -> dict[str, Any] | None:
    """Return the loss term that a slot's targets belong to, if only one can be meant."""
    kinds = {"nll": ("nll", "cross_entropy")}.get(str(slot.get("kind")), (slot.get("kind"),))
    found = [t for t in case.terms if t.get("kind") in kinds and not t.get("soft")]
    return found[0] if len(found) == 1 else None


def supervised(case: Case, slot: dict[str, Any]) -> dict[str, Any] | None:
    """Return the term of a slot whose loss compares the output of a layer with weights directly with given targets.

    That leaves out losses that make their targets themselves: contrastive ones, a queue of negatives, a critic.
    """
    term = term_of(case, slot)
    if term is None or not term.get("direct") or not slot.get("alone") or not slot.get("single"):
        return None
    if not case.alone or len(case.terms) != 1 or slot.get("stream", case.stream) != case.stream:
        return None
    layer = case.layout.by_path.get(str(term.get("layer")))
    if layer is None or not any(word in layer.type for word in WEIGHTED):
        return None
    return term


def one_sided(slot: dict[str, Any]) -> bool:
    """Return True if the kept samples hold too few of any class but the main one to ask what inputs tell of them."""
    rows = [row[0] for row in ((slot.get("predicted") or {}).get("classes") or {}).values()]
    share = 1 - max(rows) / sum(rows) if sum(rows) else 1.0
    return share * int((slot.get("fit") or {}).get("samples", 0)) < OTHERS and bool(rows)


def head(term: dict[str, Any]) -> str:
    """Return the first operation under a loss, empty if there is none."""
    names = term.get("chain") or [""]
    return str(names[0])


def applied_by(case: Case, term: dict[str, Any], name: str) -> str | None:
    """Return the module that applies an operation between the last weights and the loss, else the layer of the weights.

    A function applied in ``forward`` has no module of its own.
    """
    layer = term.get("layer")
    for edge in case.layout.edges:
        found = case.layout.by_path.get(edge.target)
        if edge.source == layer and not edge.ops and found is not None and found.type.lower() == name:
            return found.path
    return str(layer) if layer is not None else None


def raised(case: Case, *texts: str) -> str:
    """Return the message with which the script ended if it holds one of these texts, else an empty string."""
    outcome = case.run.info.outcome
    message = outcome.message.strip() if outcome.kind == "raised" else ""
    return message.splitlines()[-1] if message and any(text in message for text in texts) else ""


def below(case: Case, weigh: Weighing, floor: float, because: str) -> None:
    """Weigh whether the only loss went below a level that a fault would make impossible."""
    if len(case.terms) != 1 or case.terms[0].get("reduction") != "mean" or not len(case.loss.finite):
        return
    if case.terms[0].get("sign") == -1 or not math.isfinite(floor):
        return
    best = case.loss.best
    if best < floor - 0.02:
        weigh.against(f"the loss fell to {case.loss.lowest}, below what {because}", 4.0, best, floor)
    else:
        said = f"the loss never went below {number(floor)}, the floor for {because}: its lowest level was"
        weigh.speaks(f"{said} {case.loss.lowest}", 0.5, best, floor)


def one_class(slot: dict[str, Any]) -> bool:
    """Return True if batches hold hardly more than one class each, of a run with several."""
    return bool(slot.get("batch_entropy", math.inf) < 0.15 * slot.get("entropy", 0.0))


def head_code(term: dict[str, Any]) -> str:
    """Return how code names the output of the last layer."""
    layer = term.get("layer")
    return f"the output of {layer!r}" if layer else "the last linear layer's output"
