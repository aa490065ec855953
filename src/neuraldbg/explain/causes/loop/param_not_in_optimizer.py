"""Trainable parameters are in no optimizer: they get gradients but never move.

What it is
    A parameter takes part in the loss and receives a gradient, yet no optimizer holds it. It keeps its initial value
    for the whole run. Typical reasons: the optimizer was built from a part of the model, a layer was added or unfrozen
    afterwards, or parameter groups were picked by name and one was missed.

Symptoms
    Often hardly at all: the rest of the network trains around the constant layer and the result is just worse. If the
    layer is the output layer or the only useful one, the loss stays where it is.

Evidence
    It is read from the program: the parameter has a gradient at the step and is in no parameter group of any optimizer
    that stepped. Its values are checked too: if they change, something else updates them and it is no fault. Layers
    that are unfrozen during the run must be in an optimizer that steps afterwards: one that held them before they were
    frozen does not count. Nor does an optimizer that is gone, where a newer one takes the steps. Training only a new
    head on a fixed backbone is often meant; then all layers before the trained part are left out.

What to do
    Add the parameters to the optimizer, or mark them with ``requires_grad_(False)`` if they should stay fixed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.edits import after
from neuraldbg.explain.evidence.faded_updates import weigh_fall
from neuraldbg.explain.evidence.record_readings import owner
from neuraldbg.explain.evidence.wording import a_step, listing, plural, rounded, verb
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.hidden import HiddenFact
from neuraldbg.nouns.facts.params import ParamsFact
from neuraldbg.nouns.facts.places import PlacesFact
from neuraldbg.nouns.facts.unstepped import UnsteppedFact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.record_readings import Joined
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.kinds import SourceLine

LASTING = 50
"""Steps after the last change of the PARAMS fact that are enough to judge a model that was made during the run."""
SOON = 3
"""Steps within which a program gives unfrozen parameters to the optimizer, if it does."""
SETS = re.compile(r"\brequires_grad\s*=\s*True\b|\brequires_grad_\(\s*(True\s*)?\)")
"""A statement that unfreezes."""
VERSIONS = 3
"""Latest readings of the PARAMS fact in which the parameter must be left out: groups may be added during a run."""


def judge(case: Case) -> Finding | None:
    """Weigh parameters that get gradients and are in no optimizer."""
    names = case.standing("not_in_optimizer", VERSIONS) or _of_a_later_model(case)
    never_steps = case.run.known(UnsteppedFact) is not None and not case.optimizers
    if not names and (late := _unfrozen(case)) is not None:
        return _weigh_unfrozen(case, late)
    if not names and (joined := case.joined("not_in_optimizer", LASTING)) is not None:
        return _weigh_joined(case, joined)
    if not names or never_steps:
        return _of_the_loss(case) if not names else None
    weigh = Weighing()
    weigh.speaks(
        f"{listing(names)} received gradients and {verb(names, 'is', 'are')} in no parameter group of any optimizer",
        5.0,
        len(names),
        0,
    )
    # Something else may update them: a second training loop, or code of the program.
    moved = movement(case, names)
    if moved is True:
        weigh.against("their values change during the run, so something else updates them", 7.0)
    elif moved is False:
        weigh.speaks("their values never changed during the run", 0.8)
    # Two other explanations: an optimizer that is older than the model, and a head trained on a fixed backbone.
    foreign = max((fact.foreign_no_grad for fact in case.optimizers), default=0)
    if foreign:
        weigh.against(
            f"the optimizer holds {plural(foreign, 'tensor')} that belong to no model and get no gradient, as "
            "if it had been built before the model was changed",
            4.0, foreign, 0,
        )  # fmt: skip
    if left_out_first(case, names):
        weigh.against(
            "everything before the trained layers is left out, as when only a head is trained on a fixed backbone",
            2.0 if case.trouble.any else 4.0,
        )
    layer = owner(names[0])
    return weigh.conclude(
        f"parameters that no optimizer holds: no step uses the gradients of {grouped(case, names)}",
        _remedy(case, names),
        layer=layer,
        step=0,
        failure="untrained layer",
    )


class Unfrozen(NamedTuple):
    """Parameters that were frozen first and got gradients later."""

    names: list[str]
    frozen: int
    """The last reading at which one of them was frozen."""
    step: int
    """The first reading after it."""


def _unfrozen(case: Case) -> Unfrozen | None:
    """Return the parameters that were frozen once, and were in no optimizer at every reading since they got gradients
    again: groups may be added some steps later.
    """
    versions = case.run.versions(ParamsFact)
    names = list(versions[-1][1].not_in_optimizer) if len(versions) > 1 else []
    frozen = {name: max((step for step, fact in versions if name in fact.frozen), default=None) for name in names}
    late = {name: step for name, step in frozen.items() if step is not None}
    if not late:
        return None
    before = max(late.values())
    after = [(step, fact) for step, fact in versions if step > before]
    if not after or not all(set(late) <= set(fact.not_in_optimizer) for _, fact in after):
        return None
    step = after[0][0]
    ends = step >= case.run.steps - 1  # read at the end of the run: they were unfrozen at some step since
    if not ends and case.run.steps - step < SOON:
        return None
    return Unfrozen(sorted(late, key=lambda name: (case.depth(owner(name)), name)), before, step)


def _weigh_unfrozen(case: Case, late: Unfrozen) -> Finding:
    names, weigh = late.names, Weighing()
    some, they, them = grouped(case, names), verb(names, "it gets", "they get"), verb(names, "it", "them")
    weigh.speaks(
        f"{some} {verb(names, 'was', 'were')} frozen up to step {late.frozen} at least; from step {late.step} on "
        f"{they} gradients, and no optimizer that steps holds {them}",
        5.0, len(names), 0,
    )  # fmt: skip
    moved = movement(case, names, late.step)
    if moved is True:
        weigh.against("their values change since then, so something else updates them", 7.0)
    elif moved is False:
        weigh.speaks("their values never changed since then", 0.8)
    at = _unfreezing(case)
    return weigh.conclude(
        f"parameters that were unfrozen and never given to the optimizer: no step uses the gradients of {some}",
        Remedy(
            "Give the parameters to the optimizer when they are unfrozen.",
            'held = {id(p) for group in optimizer.param_groups for p in group["params"]}\n'
            "new = [p for p in model.parameters() if p.requires_grad and id(p) not in held]\n"
            'optimizer.add_param_group({"params": new})',
        ),
        layer=owner(names[0]),
        step=late.step,
        failure="untrained layer",
        at=at,
        doing="the parameters are unfrozen",
    )


def fed(case: Case, name: str, since: int) -> bool | None:
    """Return True if the gradient of a parameter changed from a step on, False if it is a rest from before; None if it
    was not read twice.
    """
    for row in case.layout.rows("param_grad"):
        if case.layout.sites[row].label == name:
            values = case.run.series(row, "rms").finite().between(since, case.steps_taken).values
            return bool(np.ptp(values) > 0) if len(values) > 1 else None
    return None


def _weigh_joined(case: Case, joined: Joined) -> Finding | None:
    """Weigh parameters that no optimizer holds since some step: a new optimizer was made of a part of the model."""
    flows = {name: fed(case, name, joined.until) for name in joined.names}
    names, weigh = [name for name, flow in flows.items() if flow is not False], Weighing()
    if not names:
        return None
    some = grouped(case, names)
    weigh.speaks(
        f"{some} {verb(names, 'gets', 'get')} gradients and {verb(names, 'is', 'are')} in no optimizer that steps, at "
        f"each reading from step {joined.until} on",
        3.5, len(names), 0,
    )  # fmt: skip
    if all(flows[name] for name in names):
        weigh.speaks("their gradients change from reading to reading", 1.0)
    elif not any(step > joined.until for step in case.facts_read):
        weigh.against("that was read in one step alone", 1.5)
    moved = movement(case, names, joined.until)
    if moved is True:
        weigh.against("their values change since then, so something else updates them", 7.0)
    elif moved is False:
        weigh.speaks("their values never changed since then", 0.8)
    parts = {owner(name) for name in names}
    layers = [case.layout.by_path[path] for path in parts if path in case.layout.by_path]
    whole = all(f"{layer.path}.{p}" in names for layer in layers for p in layer.params)
    if whole and left_out_first(case, names):
        weigh.against("everything before the trained layers is left out, as when only a head is trained from then on",
                      2.0 if case.trouble.any else 4.0)  # fmt: skip
    elif _fresh(case, names, joined):
        weigh.speaks("they had no gradient before, and no optimizer of this run ever held them", 1.5)
    elif whole:
        weigh.against("whole layers are left out, as in a training by stages", 2.0)
    # A second phase on other data, as a fine-tuning of biases and norms alone, learns something anew.
    newest = case.loss_of(case.run.streams[-1]) if len(case.run.streams) > 1 else None
    if newest is None:
        weigh_fall(case, weigh, joined.since, joined.until)
    elif newest.learned and not _fresh(case, names, joined):
        weigh.against(
            f"the training with the new optimizer learns: its loss fell {newest.course}", 5.0, newest.relative
        )
    return weigh.conclude(
        f"parameters that no optimizer holds since {a_step(joined.since, joined.until)}: no step uses the gradients "
        f"of {some}",
        _remedy(case, names),
        layer=owner(names[0]),
        step=joined.until,
        since=joined.since,
        failure="untrained layer",
    )


def _unfreezing(case: Case) -> SourceLine | None:
    """Return the only line of the functions of a step that sets ``requires_grad`` to True; None if none or several."""
    fact = case.run.known(PlacesFact)
    lines = fact.lines.items() if fact is not None else ()
    found = {at for kind, places in lines if kind.startswith("code ") for at in places if SETS.search(at.text)}
    return found.pop() if len(found) == 1 else None


def _of_a_later_model(case: Case) -> list[str]:
    """Return the parameters of a model that was made during the run and has been trained for long without them."""
    versions = case.run.versions(ParamsFact)
    if len(versions) < 2 or case.run.steps - versions[-1][0] < LASTING:
        return []
    known = {name for name in versions[-1][1].not_in_optimizer if movement(case, [name]) is False}
    first = {layer.model for layer in case.layout.layers} & set(case.run.info.models[:1])
    later = (layer for layer in case.layout.layers if layer.model not in first)
    return [name for layer in later for name in (f"{layer.path}.{p}" for p in layer.params) if name in known]


def _fresh(case: Case, names: Sequence[str], joined: Joined) -> bool:
    """Return True if parameters had no gradient before they joined those that no optimizer holds: a part of the model
    that is first used in a later training, and was trained in none.
    """
    before = [fact for step, fact in case.run.versions(ParamsFact) if step < joined.until]
    return bool(before) and set(names) <= {*before[-1].no_grad, *before[-1].uncalled}


def _of_the_loss(case: Case) -> Finding | None:
    """Weigh weights of a module beside the model, such as a loss with its own centres, proxies or temperature."""
    fact = case.run.known(HiddenFact)
    held = fact.weights if fact is not None else ()
    weights = [w for w in held if w.how == "model" and not w.moved and w.seen >= 2]
    if not weights:
        return None
    names, holder = [w.name for w in weights], weights[0].holder
    weigh = Weighing()
    weigh.speaks(f"the graph of the loss reaches {listing(names)}, and no optimizer holds them", 3.8, len(names), 0)
    weigh.speaks(f"{holder!r} has weights of its own and no layers, as a loss with centres or proxies has", 0.5, holder)
    weigh.speaks("their values never changed during the run", 0.5)
    lr = f", lr={rounded(case.lr)}" if case.lr > 0 else ""
    return weigh.conclude(
        f"parameters that no optimizer holds: no step uses the gradients of {listing(names)}",
        Remedy(
            f"Give the optimizer the parameters of {holder!r} too; freeze them if they should stay fixed.",
            f"optimizer = torch.optim.{case.optimizer_name}([*model.parameters(), *{holder}.parameters()]{lr})",
        ),
        layer=weights[0].layer,
        step=0,
        failure="untrained weights",
    )


def grouped(case: Case, names: list[str]) -> str:
    """Write names of parameters, or the name of a layer if all of its parameters are among them: ``rnn, fc.bias``."""
    said: list[str] = []
    for name in names:
        layer = case.layout.by_path.get(owner(name))
        whole = layer is not None and layer.path and {f"{layer.path}.{p}" for p in layer.params} <= set(names)
        said.append(owner(name) if whole else name)
    return listing(dict.fromkeys(said))


def movement(case: Case, names: list[str], since: int = 0) -> bool | None:
    """Return True if any of these parameters changed its values from a step on; None if that was not recorded."""
    known = False
    for row in case.layout.rows("param"):
        if case.layout.sites[row].label not in names:
            continue
        # Of a large weight each step reads another sample, so its statistics differ without any movement.
        counts, total = case.run.series(row, "count").values, case.run.series(row, "total").values
        series = [case.run.series(row, name).values for name in ("rms", "mean")]
        usable = (counts == total) & np.isfinite(series[0]) & np.isfinite(series[1])
        usable &= case.run.series(row, "count").steps >= since
        rms, mean = (values[usable] for values in series)
        if len(rms) < 3:
            continue
        known = True
        if np.ptp(rms[1:]) > 1e-6 * abs(rms[0]) or np.ptp(mean[1:]) > 1e-6 * abs(rms[0]):
            return True
    return False if known else None


def left_out_first(case: Case, names: list[str]) -> bool:
    """Return True if the left-out parameters are the first part of the network, before all other layers."""
    chosen = {owner(name) for name in names}
    depths = [case.depth(layer.path) for layer in case.ordered if layer.params and layer.path not in chosen]
    deepest = max(case.depth(path) for path in chosen)
    return bool(depths) and len(chosen) > 1 and deepest < min(depths)


def _remedy(case: Case, names: list[str]) -> Remedy:
    lr = case.lr
    rate = f", lr={rounded(lr)}" if lr > 0 else ""
    add = (
        f"missing = {names!r}\n"
        'optimizer.add_param_group({"params": [p for n, p in model.named_parameters() if n in missing]})'
    )
    return Remedy(
        "Build the optimizer from all parameters, or add the missing ones as a group; freeze them if they are meant to "
        "stay as they are.",
        f"optimizer = torch.optim.{case.optimizer_name}(model.parameters(){rate})\n"
        "# or, for the missing ones only:\n"
        f"{add}",
        (after("optimizer", add),),
    )


CAUSE = Cause(
    module=__name__,
    title="Trainable parameters missing from the optimizer",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    place="optimizer",
    page=__doc__ or "",
)
