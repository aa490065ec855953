"""Layers or weights that the model uses but does not own: the optimizer never sees them.

What it is
    ``nn.Module`` collects the layers and parameters that are assigned to it directly. A layer inside a plain Python
    list, tuple or dictionary, inside an object that is no ``nn.Module``, or a tensor made with
    ``requires_grad=True`` instead of ``nn.Parameter``, is not collected. ``model.parameters()`` leaves it out, so no
    optimizer holds it, ``state_dict`` does not save it and ``model.to(device)`` does not move it.

Symptoms
    Nothing fails. These layers compute, and get gradients, but keep their random initial values for the whole run.
    The rest of the network trains around them and the result is worse than it should be.

Evidence
    The graph of the loss ends at every weight that took part. Those that no optimizer holds are searched for in what
    the modules of the model hold. It is a fault if one is found there and its values never change. A layer that is
    registered and left out of the optimizer is another fault (``param_not_in_optimizer``). A module that is hidden in
    a list of its own on purpose (a fixed network of the loss, a teacher), tensors that the program differentiates by
    itself (coordinates, images) and inputs of the model are no fault.

What to do
    ``nn.ModuleList`` for lists, ``nn.ModuleDict`` for dictionaries, ``nn.Module`` as the base of the object,
    ``nn.Parameter`` for tensors; and build the optimizer afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.evidence.graph_wiring import MEANT
from neuraldbg.explain.evidence.wording import listing, plural
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy
from neuraldbg.nouns.facts.hidden import HiddenFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns.facts.hidden import HiddenWeight

READINGS = 2
"""Least number of steps in which a weight must have been seen: a tensor that lives for one step is no weight."""
WHERE = {
    "list": "a plain list", "tuple": "a tuple", "dict": "a plain dictionary", "set": "a set",
    "object": "an object that is no nn.Module", "tensor": "a plain attribute", "result": "a plain attribute",
}  # fmt: skip


def judge(case: Case) -> Finding | None:
    """Weigh weights that the graph of the loss reaches and no module has registered."""
    fact = case.run.known(HiddenFact)
    weights = [w for w in fact.weights if _guilty(w)] if fact is not None else []
    if not weights:
        return None
    names = [w.name for w in weights]
    layers = list(dict.fromkeys(w.owner for w in weights))
    first = weights[0]
    where = WHERE.get(first.how, "a plain attribute")
    weigh = Weighing()
    weigh.speaks(
        f"the graph of the loss reaches {listing(names)}, which no module has registered and no optimizer holds",
        _strength(first), len(names), 0,
    )  # fmt: skip
    weigh.speaks(f"their values are the same in all {first.seen} steps that were read", 0.8, first.seen)
    # A loss may have a fixed part; weights before a trained layer are part of the model.
    if all(w.feeds == ("loss",) for w in weights) and first.how != "tensor":
        weigh.against("no trained layer follows them, so they may be a fixed part of the loss", 1.0)
    what = "weights" if first.how in ("tensor", "result") else "layers"
    return weigh.conclude(
        f"{what} in {where}: {listing(layers)} {'is' if len(layers) == 1 else 'are'} no part of the model for PyTorch, "
        "so no optimizer trains them",
        _remedy(first, plural(len(weights), "tensor")),
        layer=first.layer,
        step=0,
        failure="untrained layer",
    )


def _guilty(weight: HiddenWeight) -> bool:
    if weight.how == "model" or weight.moved or weight.seen < READINGS:
        return False
    # One part in a list, or behind an object, may be hidden on purpose; of several in a list or a dictionary the name
    # says nothing.
    if MEANT.search(weight.layer) and (weight.lone or weight.how not in ("list", "tuple", "dict", "set")):
        return False
    # `self.vgg = [vgg]` is a known way to keep a fixed network of the loss out of the model's parameters.
    return not (weight.lone and weight.feeds == ("loss",))


def _strength(weight: HiddenWeight) -> float:
    if weight.parameter:
        return 6.0
    return 4.6 if len(weight.shape) > 1 else 3.6


def _remedy(weight: HiddenWeight, count: str) -> Remedy:
    target = f"self.{weight.attribute}"
    tensors = weight.owner == weight.name
    code = {
        "list": f"{target} = nn.ParameterList({target})" if tensors else f"{target} = nn.ModuleList({target})",
        "tuple": f"{target} = nn.ModuleList({target})",
        "set": f"{target} = nn.ModuleList({target})",
        "dict": f"{target} = nn.ParameterDict({target})" if tensors else f"{target} = nn.ModuleDict({target})",
        "object": f"# give the class of {target} the base nn.Module, and call super().__init__() in its __init__",
        "tensor": f"{target} = nn.Parameter({target}.detach())",
        "result": f"{target} = nn.Parameter({target}.detach())  # compute the value first, then make it a parameter",
    }[weight.how]
    holder = f" (in {weight.holder!r})" if weight.holder else ""
    return Remedy(
        f"Register {target}{holder}, {count} in all, and build the optimizer afterwards.",
        f"# in __init__:\n{code}",
    )


CAUSE = Cause(
    module=__name__,
    title="Weights not registered with the model",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS,
    judge=judge,
    place="layer",
    page=__doc__ or "",
)
