"""The causal chain: the cause, the events that follow in time and along the data flow, and the symptom."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from neuraldbg.explain.evidence.case import Case
from neuraldbg.explain.evidence.symptom import is_symptom
from neuraldbg.explain.evidence.wording import listing
from neuraldbg.nouns import Chain, ChainEdge, ChainNode
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.nouns import Diagnosis, Event, Hypothesis, RunRecord

LONGEST = 8
"""Largest number of events in a chain: more would hide the reasoning."""
BACKWARD = frozenset({"vanishing_gradients", "exploding_gradients", "gradient_spike", "nonfinite_gradient"})
"""Kinds of events that spread from the loss back to the input."""
PHASE = {
    "nonfinite_input": 0,
    "activation_scale": 1,
    "dead_units": 1,
    "saturated_units": 1,
    "nonfinite_activation": 1,
    "nonfinite_loss": 2,
    "loss_spike": 2,
    "loss_divergence": 2,
    "vanishing_gradients": 3,
    "exploding_gradients": 3,
    "gradient_spike": 3,
    "nonfinite_gradient": 3,
    "update_ratio_high": 4,
    "update_ratio_low": 4,
    "unchanged_parameters": 4,
    "nonfinite_parameter": 4,
    "loss_plateau": 5,
}
"""Position of each kind of event within a step: forward, loss, backward, update; a plateau is seen last."""


def flow_order(case: Case, events: Iterable[Event]) -> list[Event]:
    """Sort events by first step, then along the data flow: forward ones by depth, backward ones against it."""

    def key(event: Event) -> tuple[int, int, int, str]:
        depth = case.depth(event.layer)
        return (event.first_step, PHASE.get(event.kind, 1), -depth if event.kind in BACKWARD else depth, event.kind)

    return sorted(events, key=key)


def build(case: Case, hypothesis: Hypothesis | None, kinds: Iterable[str] | None = None) -> Chain:
    """Build the chain of one hypothesis or, without one, of the events of ``kinds``; empty if there are no nodes.

    Each kind of event has one node, at the layer where it began; the label says how far it spread.
    """
    # Events that ended before the cause was at work are no consequences of it.
    wanted = frozenset(kinds) if kinds is not None else frozenset(hypothesis.explains if hypothesis else ())
    start = hypothesis.step if hypothesis is not None and hypothesis.step is not None else 0
    events = [e for e in case.run.events if e.kind in wanted and is_symptom(e) and e.last_step >= start]
    # Only the first event of a kind becomes a node: a failure that spreads has many events of one kind.
    groups: dict[str, list[Event]] = {}
    for event in flow_order(case, events):
        groups.setdefault(event.kind, []).append(event)
    nodes: list[ChainNode] = []
    leading = [group[0] for group in groups.values()][:LONGEST]
    if hypothesis is not None:
        nodes.append(
            ChainNode(f"cause:{hypothesis.cause}", "cause", hypothesis.cause, hypothesis.layer, hypothesis.step)
        )
    for event in leading:
        where = event.layer or event.site or "run"
        nodes.append(
            ChainNode(
                f"event:{event.kind}:{where}:{event.first_step}", "event", _label(event, groups[event.kind]),
                event.layer, event.first_step,
            )
        )  # fmt: skip
    trouble = case.trouble
    if trouble.phrase and (hypothesis is not None or nodes):
        nodes.append(ChainNode(f"symptom:{trouble.kind}", "symptom", trouble.phrase, None, trouble.step))
    return Chain(tuple(nodes), tuple(_edges(nodes))) if nodes else Chain()


def trace(run: RunRecord, diagnosis: Diagnosis, name: str) -> Chain:
    """Return the chain behind a hypothesis (its cause id), a failure ("loss divergence") or a kind of event.

    The order of the words, their plural and case do not matter; for a kind of event one word of its name is enough:
    "vanishing". The chain is empty if neither the diagnosis nor the run has that name.
    """
    case, wanted = Case(run), _plain(name)
    for hypothesis in diagnosis.hypotheses:
        if wanted in (_plain(hypothesis.cause), _plain(hypothesis.failure)):
            return build(case, hypothesis)
    known = {e.kind for e in run.events if wanted <= _plain(e.kind) or wanted == _plain(e.transition)}
    if not known or not wanted:
        return Chain()
    parent = next((h for h in diagnosis.hypotheses if known & set(h.explains)), None)
    last = max(event.first_step for event in run.events if event.kind in known)
    before = {e.kind for e in run.events if e.first_step <= last and (parent is None or e.kind in parent.explains)}
    return build(case, parent, before | known)


def _plain(name: str) -> frozenset[str]:
    """Return the words of a name in lower case and singular: ``vanishing_gradients`` and "gradient vanishing" are one
    name.
    """
    words = name.strip().lower().replace("_", " ").replace("-", " ").split()
    return frozenset(word.removesuffix("s") for word in words)


def _label(event: Event, group: list[Event]) -> str:
    words = event.kind.replace("_", " ")
    layers = list(dict.fromkeys(e.layer for e in group if e.layer and e.layer != "loss"))
    affected = event.details.get("affected")
    if len(layers) > 1:
        return f"{words} in {listing(layers)}"
    spread = f", {len(affected)} places" if isinstance(affected, (list, tuple)) and len(affected) > 1 else ""
    return f"{words} in {called(layers[0])}{spread}" if layers else words


def _edges(nodes: list[ChainNode]) -> Iterable[ChainEdge]:
    for source, target in itertools.pairwise(nodes):
        if source.role == "cause":
            why = "cause"
        elif source.step is not None and source.step == target.step and target.role == "event":
            why = "data flow"
        else:
            why = "time"
        yield ChainEdge(source.id, target.id, why)
