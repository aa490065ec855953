"""The hypothesis of a run that fails for none of the known causes: what was observed, and what to look at next."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.explain.evidence.training_loop import brief, crashed
from neuraldbg.explain.evidence.unfed_layers import unfed, unfed_words
from neuraldbg.explain.evidence.wording import a_step, listing, moved, number
from neuraldbg.explain.verdict.causal_chain import flow_order
from neuraldbg.explain.verdict.dating import unseen
from neuraldbg.nouns import UNKNOWN, Evidence, Hypothesis, Remedy
from neuraldbg.nouns.layout import called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns import Event

MEASURES = ("norm", "rms", "ratio", "share", "loss")
"""Names of the number that an event is about in its details, the first that is there."""
ONE_BATCH = (
    "x, y = next(iter(loader))  # one batch, again and again\n"
    "for _ in range(200):\n"
    "    optimizer.zero_grad()\n"
    "    loss = loss_fn(model(x), y)\n"
    "    loss.backward()\n"
    "    optimizer.step()\n"
    "print(loss.item())"
)


def unknown(case: Case) -> Hypothesis:
    """Return the hypothesis that the cause is none of the known ones, with the observations, the weightiest first."""
    seen = sorted(_observations(case), key=lambda one: -one.weight)
    step = case.run.steps if crashed(case) else case.onset if case.trouble.any else _halted_at(case)
    layer = _first_layer(case, step)
    told = [one.statement for one in seen if one.weight >= 0.6] or [one.statement for one in seen]
    return Hypothesis(
        cause=UNKNOWN,
        category=UNKNOWN,
        confidence=0.0,
        sentence="a reason that is none of the known causes; observed: " + "; ".join(told[:3]),
        layer=layer,
        step=step,
        evidence=tuple(seen),
        remedy=_next(case, layer, step),
        rank=1,
        failure=_failure(case),
        explains=tuple(sorted(case.kinds)),
    )


def _failure(case: Case) -> str:
    if crashed(case):
        return "crash"
    return case.trouble.name or ("halted training" if case.run.info.outcome.kind == "halted" else "suspect run")


def _observations(case: Case) -> Iterator[Evidence]:
    trouble, outcome = case.trouble, case.run.info.outcome
    if trouble.phrase:
        yield Evidence(trouble.phrase, True, 4.0)
    if outcome.kind == "halted":
        yield Evidence(f"training was halted: {outcome.message}", True, 3.5)
    elif outcome.kind == "raised" and outcome.message:
        where = f" at {outcome.where}" if outcome.where else ""
        yield Evidence(f"the script crashed with {brief(outcome.message)}{where}", True, 4.5)
    origin = case.origin
    if origin is not None:
        where = f"{origin.first.kind} of {called(origin.first.module)}" if origin.first is not None else "loss"
        yield Evidence(f"the first NaN or infinite value is in the {where}, at step {origin.step}", True, 3.0)
    if never := unfed_words(case):
        yield Evidence(never, True, 2.5, 0.0)
    for change in case.changes[:3]:
        yield Evidence(change.said, True, 3.2)
    yield from _events(case)
    for trend in case.metric_trends:
        yield Evidence(f"the logged {trend.phrase}, while the loss fell", True, 1.5)
    # What the optimizer does is known of every run, and says least.
    if math.isfinite(case.rate):
        yield Evidence(f"{case.optimizer_name} has a learning rate of {number(case.rate)}", True, 0.5, case.rate)
    ratio = case.typical_update_ratio
    if math.isfinite(ratio):
        yield Evidence(f"an update changes {moved(ratio)}", True, 0.4, ratio)


def _events(case: Case) -> Iterator[Evidence]:
    """Yield each kind of event with its layers and steps; those up to the onset of the failure weigh more."""
    groups: dict[str, list[Event]] = {}
    never = unfed(case)
    for event in flow_order(case, case.run.events):
        if event.layer in never and event.details.get("zero"):
            continue  # said already, in plainer words
        groups.setdefault(event.kind, []).append(event)
    for kind, events in groups.items():
        first, last = min(e.first_step for e in events), max(e.last_step for e in events)
        layers = list(dict.fromkeys(e.layer for e in events if e.layer))
        where = f" in {listing(layers)}" if layers else ""
        since = unseen(case, min(events, key=lambda e: e.first_step))
        when = f"at step {first}" if first == last else f"from {a_step(since, first)} to {last}"
        details = events[0].details
        name = next((name for name in MEASURES if _number(details.get(name)) is not None), "")
        value = _number(details.get(name))
        at = details.get("at_step")
        told = f", {name} {number(value)} at step {at}" if value is not None and at is not None else ""
        early = not case.trouble.broke or case.onset is None or first <= case.onset
        weight = events[0].confidence * (2.0 if early else 1.2)
        said = f"{kind.replace('_', ' ')}{where} {when}{told}"
        yield Evidence(said, True, weight, value, _number(details.get("threshold")))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _halted_at(case: Case) -> int | None:
    history = case.history
    return int(history.steps[-1]) if case.run.info.outcome.kind == "halted" and len(history) else None


def _first_layer(case: Case, step: int | None) -> str | None:
    """Return the layer in which the failure is first seen; None if no layer stands out."""
    origin = case.origin
    if origin is not None and origin.first is not None and origin.first.module in case.layout.by_path:
        return origin.first.module or None
    if not case.trouble.broke:
        return None
    events = [e for e in case.run.events if e.layer and (step is None or e.first_step <= step + 1)]
    return flow_order(case, events)[0].layer if events else None


def _next(case: Case, layer: str | None, step: int | None) -> Remedy:
    """Return what to look at next, in the order of effort."""
    if crashed(case) and not case.trouble.broke:
        where = case.run.info.outcome.where or "the line that raised it"
        script = case.run.info.script or "train.py"
        text = (
            f"Look at {where}: print the values, shapes, dtypes and devices that go into it. The debugger of Python "
            "stops there with everything at hand."
        )
        return Remedy(text, f"python -m pdb -c continue {script}")
    if step is not None and (case.trouble.broke or case.run.info.outcome.kind == "halted"):
        before = max(0, step - 1)
        did = f" and what step {before} did" if step else ""
        text = (
            f"Look at what step {step} was given{did}: its batch, activations and gradients of each layer "
            "(`neuraldbg plot RUN --view heatmap`), the loss function at extreme values. Then run the same seed with a "
            "tenth of the learning rate: a failure that stays at its step is in the data, one that moves or goes is in "
            "the optimisation. `neuraldbg compare` shows the first difference between both runs."
        )
        of = layer if layer is not None else next((one.path for one in case.layout.layers if one.params), "")
        code = f"dbg.inspect({of!r}, step={before}).statistics\ndbg.get_gradient_history({of!r})"
        return Remedy(text, code)
    never = unfed(case)
    told = (
        f"Look at what lies between {listing(never)} and the loss: a mask the wrong way round, a factor of 0, an "
        "output that is computed and left out. Then train"
        if never
        else "Train"
    )
    text = (
        f"{told} on one batch alone for some 200 steps: if the loss does not fall to nearly zero, the fault is in "
        "model, loss or loop; if it does, look at the data (inputs and targets of the same sample, their order, their "
        "scale) and at the learning rate."
    )
    return Remedy(text, ONE_BATCH)
