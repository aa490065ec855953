"""The causal chain: the cause, the events that follow in time and along the data flow, and the symptom."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.explain.evidence.case import Case
from neuraldbg.explain.evidence.symptom import KINDS
from neuraldbg.explain.evidence.training_loop import brief, crashed, raised
from neuraldbg.explain.evidence.wording import listing
from neuraldbg.explain.names import Meaning, meaning, within
from neuraldbg.explain.verdict.dating import unseen
from neuraldbg.nouns import UNKNOWN, Chain, ChainEdge, ChainNode, Hypothesis
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.nouns import Diagnosis, Event, RunRecord

LONGEST = 8
"""Largest number of events in a chain: more would hide the reasoning."""
SETTLED = 8
"""Losses after a divergence that show whether it is over."""
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
    "large_weights": 4,
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


def build(
    case: Case,
    hypothesis: Hypothesis | None,
    kinds: Iterable[str] | None = None,
    asked: Meaning | None = None,
    effects: Iterable[Hypothesis] = (),
) -> Chain:
    """Build the chain of one hypothesis or, without one, of the events of ``kinds``; empty if there are no nodes.

    Each kind of event has one node, at the layer where it began; the label says how far it spread. Events that are
    ``asked`` for are in the chain also where a detector is not sure of them, those of a layer at nodes of their own.
    ``effects`` are hypotheses that the cause can lead to: each is a node with the name of its failure.
    """
    # Events that ended before the cause was at work are no consequences of it.
    wanted = frozenset(kinds) if kinds is not None else frozenset(hypothesis.explains if hypothesis else ())
    start = hypothesis.step if hypothesis is not None and hypothesis.step is not None else 0
    mine = [e for e in case.run.events if asked is not None and asked.has(e)]
    others = [e for e in case.run.events if e.kind in wanted and e.sure and e.last_step >= start]
    # A spike that lasts is the divergence: the same rise of the loss is said once.
    begun = {(e.site, e.first_step) for e in others if e.kind == "loss_divergence"}
    others = [e for e in others if e.kind != "loss_spike" or (e.site, e.first_step) not in begun]
    apart = asked is not None and asked.layer is not None
    # Only the first event of a kind becomes a node: a failure that spreads has many events of one kind.
    groups: dict[tuple[str, bool], list[Event]] = {}
    for event in flow_order(case, [*mine, *(e for e in others if e not in mine)]):
        groups.setdefault((event.kind, apart and event in mine), []).append(event)
    nodes: list[ChainNode] = []
    leading = _longest(list(groups.values()), mine)
    # The symptom is an event, too: as the last one, or with later ones behind it, it would only be said twice.
    kind, last = KINDS.get(case.trouble.kind), leading[-1][0] if leading else None
    same = [g[0] for g in leading if g[0].kind == kind and g[0] not in mine]
    same = [e for e in same if last is not None and (e is last or e.first_step < last.first_step)]
    if same and (hypothesis is not None or len(leading) > 1):
        leading = [group for group in leading if group[0] not in same]
    if hypothesis is not None:
        step = None if _read_late(case, hypothesis.step, leading) else hypothesis.step
        nodes.append(ChainNode(f"cause:{hypothesis.cause}", "cause", hypothesis.cause, hypothesis.layer, step,
                               since=hypothesis.since if step is not None else None))  # fmt: skip
    for group in leading:
        event = group[0]
        where = event.layer or event.site or "run"
        nodes.append(
            ChainNode(
                f"event:{event.kind}:{where}:{event.first_step}", "event", _label(case, event, group),
                event.layer, event.first_step, since=unseen(case, event),
            )
        )  # fmt: skip
    for effect in effects:
        at = next((i for i, n in enumerate(nodes) if i and (n.step or 0) > (effect.step or 0)), len(nodes))
        nodes.insert(at, ChainNode(f"effect:{effect.cause}", "symptom", effect.failure, effect.layer, effect.step))
    if case.trouble.phrase and (hypothesis is not None or nodes):
        _add_symptom(case, nodes, same[0].first_step if same else case.trouble.step)
    about = asked.name if asked is not None else ""
    return Chain(tuple(nodes), tuple(_edges(nodes)), about) if nodes else Chain(about=about)


def _read_late(case: Case, step: int | None, groups: list[list[Event]]) -> bool:
    """Return True if the first effect of a cause came before its step, in steps of which nothing but the loss was read
    before that: the cause came no later than the effect, and its step is not known.
    """
    if step is None or not groups:
        return False
    effect = min(group[0].first_step for group in groups)
    return effect < step and not case.read_within(effect, step)


def _add_symptom(case: Case, nodes: list[ChainNode], step: int | None) -> None:
    """Add the symptom: a loss that broke at its step, since layers that die after it follow from it; a loss that does
    not fall at the end, without a step if that is before the last event.
    """
    trouble, at = case.trouble, len(nodes)
    if step is not None and any(node.step is not None and node.step > step for node in nodes):
        if trouble.broke:
            at = next(i for i, node in enumerate(nodes) if node.step is not None and node.step > step)
        else:
            step = None
    nodes.insert(at, ChainNode(f"symptom:{trouble.kind}", "symptom", trouble.name or trouble.phrase, None, step))


def _longest(groups: list[list[Event]], mine: list[Event]) -> list[list[Event]]:
    """Return the first groups, at most LONGEST, and those with events that were asked for."""
    spare = LONGEST - sum(group[0] in mine for group in groups)
    kept = []
    for group in groups:
        own = group[0] in mine
        if own or spare > 0:
            kept.append(group)
            spare -= not own
    return kept


def trace(run: RunRecord, diagnosis: Diagnosis, name: str | Hypothesis) -> Chain:
    """Return the chain behind a hypothesis, a cause, a failure ("loss divergence"), a kind of event or a layer.

    Names are as in `meaning`: raises UnknownName for any other. The chain is empty if the run shows no sign of it.
    """
    case = Case(run)
    if isinstance(name, Hypothesis):
        known = None if name.cause == UNKNOWN else name
        return _of_hypothesis(case, known, Meaning(name.cause))
    subject = meaning(name, run.layout, diagnosis.hypotheses)
    for hypothesis in diagnosis.hypotheses:
        if hypothesis.cause in subject.causes:
            return _of_hypothesis(case, hypothesis, subject)
    if subject.causes and not subject.kinds:
        unknown = UNKNOWN in subject.causes and (case.trouble.any or crashed(case))
        return _of_hypothesis(case, None, subject) if unknown else Chain(about=name)
    return _of_events(case, diagnosis, subject)


def _of_hypothesis(case: Case, hypothesis: Hypothesis | None, subject: Meaning) -> Chain:
    kinds = case.kinds if hypothesis is None else None
    chain = replace(build(case, hypothesis, kinds), about=subject.name)
    return chain if hypothesis is not None or not crashed(case) else _with_crash(case, chain)


def _with_crash(case: Case, chain: Chain) -> Chain:
    """Return a chain that ends with the exception which ended the script, in the step that had begun."""
    label = f"crash with {brief(raised(case))}"
    nodes = (*chain.nodes, ChainNode("symptom:crash", "symptom", label, None, case.run.steps))
    return Chain(nodes, tuple(_edges(list(nodes))), chain.about)


def _of_events(case: Case, diagnosis: Diagnosis, subject: Meaning) -> Chain:
    """Return the chain of the events of a subject, behind the most likely cause of them."""
    found = [e for e in case.run.events if subject.has(e)]
    here = [h for h in diagnosis.hypotheses if subject.layer is not None and within(h.layer, subject.layer)]
    if not found:
        return replace(build(case, here[0]), about=subject.name) if here else Chain(about=subject.name)
    kinds, last = {e.kind for e in found}, max(e.first_step for e in found)
    # A cause that came after all of these events is not the reason for them.
    behind = [h for h in diagnosis.hypotheses if kinds & set(h.explains)]
    parent = next((h for h in [*here, *behind] if any(e.last_step >= (h.step or 0) for e in found)), None)
    before = {e.kind for e in case.run.events if e.first_step <= last and (parent is None or e.kind in parent.explains)}
    return build(case, parent, before, subject)


def _label(case: Case, event: Event, group: list[Event]) -> str:
    words = event.kind.replace("_", " ")
    if event.kind == "loss_divergence" and len(group) == 1 and _came_back(case, event):
        words = f"loss divergence up to step {event.last_step}"
    named = [(e.layer, e.place if e.details.get("parameters") else e.layer) for e in group]
    layers = list(dict.fromkeys(place for layer, place in named if layer and place and layer != "loss"))
    affected = event.details.get("affected")
    if len(layers) > 1:
        return f"{words} in {listing(layers)}"
    others = _others(affected, event.layer) if isinstance(affected, (list, tuple)) else []
    return f"{words} in {listing([layers[0], *others]) if others else called(layers[0])}" if layers else words


def _others(affected: Iterable[object], layer: str | None) -> list[str]:
    """Return the further layers of an event, from the labels of its sites: ``param/fc1.weight``, ``activation/fc1``."""
    found = []
    for kind, _, label in (str(one).partition("/") for one in affected):
        found.append(label.rpartition(".")[0] if kind in ("param", "param_grad", "update") and "." in label else label)
    return [one for one in dict.fromkeys(found) if one and one != layer]


def _came_back(case: Case, event: Event) -> bool:
    """Return True if the losses after a divergence are near the best level again, or below it."""
    details = event.details
    after = case.loss.finite.between(event.last_step + 1, case.run.steps).values
    known = isinstance(details.get("best"), float) and isinstance(details.get("level"), float)
    return known and len(after) >= SETTLED and float(np.median(after)) < (details["best"] + details["level"]) / 2


def _edges(nodes: list[ChainNode]) -> Iterable[ChainEdge]:
    for source, target in itertools.pairwise(nodes):
        if source.role == "cause":
            why = "cause"
        elif source.step is not None and source.step == target.step and target.role == "event":
            why = "data flow"
        else:
            why = "time"
        yield ChainEdge(source.id, target.id, why)
