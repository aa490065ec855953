"""The graph is cut: layers before the cut are computed, but the loss never reaches them.

What it is
    Gradients flow along the operations that PyTorch has recorded. ``detach()``, ``.data``, ``.item()``, a round trip
    through numpy, ``torch.tensor(output)`` or a ``torch.no_grad()`` block end that record. What stands before gets no
    gradient. At the loss itself the sign is a ``requires_grad_(True)`` that was added because ``backward`` complained.

Symptoms
    Layers before the cut keep their initial values; those behind it train on fixed random features. If the cut lies at
    the loss, nothing trains at all and the loss stays where it is. No error is raised.

Evidence
    In training passes each call of a layer is noted: whether its input and output carry a graph, and whether gradients
    were on. A cut lies between a layer whose output had a graph and that never got a gradient, and the next one, whose
    input has none and which does get gradients. Deliberate cuts are no fault: the branch gets its gradient elsewhere or
    in other steps (stop-gradient, a generator while its discriminator trains), is in no optimizer (a target network),
    does not require gradients, or carries the name of a part that is usually fixed (a backbone), unless its weights are
    still those of a random initialisation. Layers that got gradients at first, and lose them for good where the graph
    is cut behind them, are cut from that step on. A layer whose output is not used is ``param_unused``. Of a whole
    part without gradients it cannot be seen which of the two it is, where the cut itself was not; it is named as cut,
    since such a large part is not computed for nothing.

What to do
    Keep tensors from the first layer to the loss. Use ``detach`` and ``item`` only for what is printed or plotted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.causes.loop.param_not_in_optimizer import movement
from neuraldbg.explain.causes.loop.param_unused import had_gradient
from neuraldbg.explain.evidence.change_points import TURNS
from neuraldbg.explain.evidence.graph_wiring import MEANT, PART, access, as_drawn, cut_off, cuts, dry, line
from neuraldbg.explain.evidence.record_readings import owner
from neuraldbg.explain.evidence.wording import a_step, listing, verb
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.change import ChangeFact
from neuraldbg.nouns.facts.cuts import CutsFact
from neuraldbg.nouns.facts.params import ParamsFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.cuts import GraphCut
    from neuraldbg.nouns.facts.dry import DryFact

SEVERAL = 4
"""Number of layers with parameters from which a part is more than an unused head."""
AFTER, AFTER_SHARE = 50, 0.02
"""Steps, and share of the run, without a gradient from which a layer that got one before has lost it for good."""
LATER = 1.5
"""What a cut that begins in mid-run weighs less than one that is there from the first step: code that is run from a
step on may be meant."""
SINCE = Remedy(
    "Find what the program does differently from that step on: a detach(), .data, .item(), numpy or torch.no_grad() "
    "between the model and the loss, or a loss that is made of other numbers.",
    "output = model(x)\nloss = loss_fn(output, target)  # not loss_fn(output.detach(), ...)\nloss.backward()",
)
HOW = {
    "shared": ("the input of {b!r} is the memory of the output of {a!r}, without its graph", 6.5),
    "shape": ("the input of {b!r} has the shape of the output of {a!r}, called just before, and no graph", 5.5),
    "next": ("{b!r}, called after {a!r}, is given an input without a graph", 2.8),
}
"""Evidence that one layer's output is the other's input, with its weight, for each way in which a cut was found."""


def judge(case: Case) -> Finding | None:
    """Weigh a loss that reaches no parameter, then cuts between layers, then whole parts without gradients."""
    fact = dry(case)
    if fact is not None:
        return _nothing_reached(case, fact) or _since(case)
    for seen in cuts(case):
        found = _between(case, seen, seen.cut) if seen.cut is not None else None
        found = found or (_switched_off(case, seen) if seen.no_grad else None)
        if found is not None:
            return found
    return _since(case) or _part(case)


def _since(case: Case) -> Finding | None:
    """Weigh layers that got gradients at first and get none any more."""
    turns = [fact for _, fact in case.run.versions(ChangeFact, what="gradients")]
    if not turns or len(turns) > TURNS or not (turns[-1].after or 0.0) < (turns[-1].before or 0.0):
        return None  # they get gradients again, or by turns
    turn, last = turns[-1], case.run.steps or 0
    if last - turn.until < max(AFTER, AFTER_SHARE * last):
        return None
    later = {
        name for step, fact in case.run.versions(ParamsFact) if step >= turn.since for name in fact.not_in_optimizer
    }
    if not turn.after and any(had_gradient(case, name) for name in later):
        return None  # another model gets the gradients
    weigh = Weighing()
    lost = list(dict.fromkeys(owner(name) for name in turn.names))
    said = f"{listing(lost)} got gradients up to step {turn.since}, and none from step {turn.until} on"
    if not turn.after:
        weigh.speaks(f"{said}: no parameter gets one any more", 5.0, 0, 1)
        what, cut = "a loss that is cut off from the model", None
    else:
        seen = next((fact for fact in case.run.known_each(CutsFact) if set(fact.lost) & set(lost)), None)
        cut = seen.cut if seen is not None and seen.cut is not None and seen.cut.after in lost else None
        off = [path for path in lost if seen is not None and path in seen.no_grad]
        if cut is None and not off:
            return None  # what stands behind the others may be left out of the loss on purpose
        if cut is not None:
            how, weight = HOW[cut.how]
            weigh.speaks(how.format(a=cut.after, b=cut.before), weight - LATER, cut.how)
            what = f"a graph that is cut between {cut.after!r} and {cut.before!r}"
        else:
            weigh.speaks(f"{listing(off)} {verb(off, 'is', 'are')} called with gradients switched off", 5.0 - LATER)
            what = f"a torch.no_grad() around {listing(off)} in training"
        weigh.speaks(said, 1.5, len(lost), 0)
        if any(MEANT.search(path.lower()) for path in lost):
            weigh.against("by name they are parts that are often fixed on purpose, also in the middle of a run", 3.0)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 1.0)
    place = cut.end or cut.place if cut is not None else None
    return weigh.conclude(
        f"{what} since {a_step(turn.since, turn.until)}: {listing(lost)} {verb(lost, 'gets', 'get')} no gradient any "
        "more",
        _uncut(case, cut) if cut is not None else SINCE,
        layer=cut.after if cut is not None else None,
        step=turn.until,
        since=turn.since,
        failure=case.trouble.name or "layers that no longer learn",
        at=place,
        doing="the graph ends" if cut is not None and cut.end is not None else "the layer behind the cut is called",
    )


def _part(case: Case) -> Finding | None:
    """Weigh a whole part that is called in training and gets no gradient: so much is not computed without a use."""
    # Of nested parts the outermost is named, since its output is where the graph is cut.
    lost = cut_off(case) | {owner(name) for name in case.standing("no_grad")}
    lost -= {owner(name) for name in case.standing("uncalled")}
    lost = {path for path in lost if path in case.layout.by_path and path in case.layout.called}
    roots = sorted({".".join(path.split(".")[:depth]) for path in lost for depth in range(1, path.count(".") + 1)})
    whole = [root for root in roots if _lost_whole(case, root, lost)]
    if not whole:
        return None
    part = min(whole, key=lambda root: (root.count("."), root))
    weigh = Weighing()
    weigh.speaks(f"every layer of {part} was called in training, and none of its parameters ever got a gradient", 3.3,
                 part)  # fmt: skip
    weigh.speaks("other parts of the model do get gradients", 1.0)
    if not _excused(case, weigh, sorted(path for path in lost if path == part or path.startswith(f"{part}."))):
        return None
    return weigh.conclude(
        f"a graph that is cut behind {part!r}: its output is used without its graph, or not at all",
        Remedy(f"Use the output of {part!r} as it is: without detach(), .data, .item() or numpy on the way.",
               f"x = {access(part)}(x)  # not x.detach()"),
        layer=part,
        step=0,
        failure="untrained layer",
        equivalent=("param_unused",),
    )  # fmt: skip


def _lost_whole(case: Case, root: str, lost: set[str]) -> bool:
    """Return True if a part has several layers with parameters, and all of them are lost."""
    mine = [layer.path for layer in case.layout.layers if layer.params and f"{layer.path}.".startswith(f"{root}.")]
    mine = [path for path in mine if path in case.layout.called]
    others = [layer.path for layer in case.layout.layers if layer.params and layer.path not in mine]
    return len(mine) >= SEVERAL and set(mine) <= lost and any(path not in lost for path in others)


def _nothing_reached(case: Case, fact: DryFact) -> Finding | None:
    if not _no_gradient_at_all(case):
        return None
    weigh = Weighing()
    where = f" ({line(fact.place)})" if fact.place is not None else ""
    weigh.speaks(
        f"{fact.dry} of {fact.backwards} backward passes that were checked reached no parameter of any model"
        f"{where}",
        6.0, fact.dry, 0,
    )  # fmt: skip
    # The graph of the model's output shows on which side of the output the cut is.
    if fact.leaf:
        weigh.speaks("the loss given to backward has no graph: it was made from a number or an array", 1.0)
    if fact.output_grad:
        weigh.speaks("the output of the model still had its graph, so it is lost between the model and the loss", 0.7)
        where = "between the model's output and the loss"
    else:
        where = "inside the model, or the model is called without gradients"
    return weigh.conclude(
        f"a loss that is cut off from the model {where}: no parameter ever gets a gradient",
        Remedy(
            "Compute the loss from the model's output itself, with torch operations only: no .item(), .data, detach(), "
            "numpy, torch.tensor() or argmax() on the way, and no requires_grad_(True) on the loss.",
            "output = model(x)\nloss = loss_fn(output, target)  # not loss_fn(output.detach(), ...)\nloss.backward()",
        ),
        step=fact.step,
        failure="training without effect",
    )


def _no_gradient_at_all(case: Case) -> bool:
    """Return True if neither a parameter of the models nor another tensor of an optimizer gets a gradient.

    Models that are called inside of a transform (``vmap``, ``grad`` of ``torch.func``) are not seen.
    """
    if any(one.foreign > one.foreign_no_grad for one in case.optimizers):
        return False
    return not any(len(case.run.series(row, "rms")) for row in case.layout.rows("param_grad"))


def _between(case: Case, fact: CutsFact, cut: GraphCut) -> Finding | None:
    before, after = cut.after, cut.before
    said, weight = HOW[cut.how]
    weigh = Weighing()
    known = 0.3 if cut.place is not None else 0.0  # the line is shown beside the sentence
    weigh.speaks(said.format(a=before, b=after), weight + known, cut.how)
    lost = [path for path in fact.unreached if case.depth(path) <= case.depth(after)] or [before]
    weigh.speaks(f"{listing(lost)} never got a gradient, {after!r} and what follows do", 0.7, len(lost), 0)
    if not _excused(case, weigh, lost):
        return None
    return weigh.conclude(
        f"a graph that is cut between {before!r} and {after!r}: {listing(lost)} never "
        f"{'gets' if len(lost) == 1 else 'get'} a gradient",
        _uncut(case, cut),
        layer=before,
        step=0,
        failure="untrained layer",
        at=cut.end or cut.place,
        doing="the graph ends" if cut.end is not None else f"{after!r} is called",
        equivalent=("param_unused",) if cut.how == "next" else (),
    )


def _uncut(case: Case, cut: GraphCut) -> Remedy:
    """Return the remedy of a cut between two layers of a model, or between two models."""
    before, after = cut.after, cut.before
    known = case.layout.by_path
    one, other = (known[path].model if path in known else "" for path in (before, after))
    if one == other:  # both are parts of one watched model
        one, other = (path.partition(".")[0] for path in (before, after))
    ways = "without detach(), .data, .item(), numpy or torch.tensor() on the way"
    if one == other or not (one.isidentifier() and other.isidentifier()) or len(case.run.streams) < 2:
        return Remedy(
            f"Give {after!r} the output of {before!r} as it is: {ways}.",
            f"# in forward():\nx = {access(before)}(x)\nx = {access(after)}(x)  # not x.detach()",
        )
    return Remedy(
        f"Compute the loss that shall train {one!r} from its output as it is: {ways}. Detach it only in the loss that "
        f"trains {other!r} alone.",
        f"output = {one}(x)\n# to train {other} alone:\nloss = loss_fn({other}(output.detach()), target)\n"
        f"# to train {one} through {other}:\nloss = loss_fn({other}(output), other_target)",
    )


def _switched_off(case: Case, fact: CutsFact) -> Finding | None:
    off = list(fact.no_grad)
    weigh = Weighing()
    place = next((p for p in fact.no_grad.values() if p is not None), None)
    known = 0.3 if place is not None else 0.0  # the line is shown beside the sentence
    weigh.speaks(
        f"{listing(off)} {'is' if len(off) == 1 else 'are'} called with gradients switched off in training passes",
        5.0 + known, len(off), 0,
    )  # fmt: skip
    weigh.speaks("an optimizer holds their parameters, which require gradients and never got one", 0.7, len(off), 0)
    if not _excused(case, weigh, off):
        return None
    return weigh.conclude(
        f"a torch.no_grad() around {listing(off)} in training: {'it' if len(off) == 1 else 'they'} never "
        f"{'gets' if len(off) == 1 else 'get'} a gradient",
        Remedy(
            "Call these layers with gradients on. If they should stay fixed, set requires_grad_(False) "
            "and leave them out of the optimizer.",
            f"x = {access(off[-1])}(x)  # outside of torch.no_grad()",
        ),
        layer=off[-1],
        step=0,
        failure="untrained layer",
        at=place,
        doing="gradients are switched off",
    )


def _excused(case: Case, weigh: Weighing, layers: list[str]) -> bool:
    """Weigh signs that a cut is intended; return False if it is, or if something else trains the layers."""
    # An encoder that is trained with a decoder is no fixed backbone.
    pair = any("decoder" in layer.path.lower() for layer in case.layout.layers)
    fixed = [path for path in layers if MEANT.search(path.lower().replace("encoder", "") if pair else path)]
    if fixed and as_drawn(case, layers):
        fixed = [path for path in fixed if MEANT.search(PART.sub("", path))]
        weigh.speaks(
            "their weights are as a layer's initialisation draws them: nothing was ever trained into them", 0.3
        )
        weigh.against("their names are those of parts that are usually fixed on purpose", 1.5)
    if len(fixed) == len(layers):
        return False
    if fixed:
        weigh.against("some of them carry names of parts that are usually fixed on purpose", 2.0)
    names = [name for name in case.param_names if name.rpartition(".")[0] in layers]
    return not movement(case, names)  # something else trains them


CAUSE = Cause(
    module=__name__,
    title="Autograd graph cut before the loss",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    place="loss",
    entails=frozenset({"param_unused"}),
    page=__doc__ or "",
)
