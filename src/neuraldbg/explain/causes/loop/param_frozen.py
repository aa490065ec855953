"""A layer that should train is frozen: requires_grad is False.

What it is
    A layer is used in the forward pass, but its parameters have ``requires_grad=False``: a freeze that was left
    over from an earlier phase, a wrong name pattern, or a loop that froze one layer too many.

Symptoms
    The rest of the network trains around the constant layer. The result is worse than it should be, and nothing
    fails.

Evidence
    Freezing is read from the program. Whether it is meant is judged by its shape: a whole model, a first part of
    the network (a pretrained backbone), most of the parameters (adapters are trained instead), or only
    normalisation layers are usually meant. A layer in the middle, between trained ones, or the output layer,
    usually is not; small weights that are trained beside frozen ones, part by part, are adapters.

What to do
    ``requires_grad_(True)`` for the layer, and make sure that the optimizer holds it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, UNITS, Cause
from neuraldbg.explain.edits import once_made
from neuraldbg.explain.evidence.depth_profiles import is_norm
from neuraldbg.explain.evidence.late_changes import began, weigh_change
from neuraldbg.explain.evidence.record_readings import owner
from neuraldbg.explain.evidence.wording import listing, percent, verb
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.evidence.change_points import ChangePoint
    from neuraldbg.explain.finding import Finding

MEANT = re.compile(
    r"backbone|encoder|pretrain|feature|teacher|target|ema|frozen|base_|embed|pos|vgg|lpips|clip", re.IGNORECASE
)
"""Pattern of the names of parts that people freeze on purpose."""

FEW_LAYERS = 2
"""Largest number of frozen layers between trained ones that are no pretrained part."""
SMALL_SHARE = 0.5
PARTS = 2
"""Least number of parts with small trained weights that count as adapters."""


def judge(case: Case) -> Finding | None:
    """Weigh frozen layers by their position, their share of the parameters and their names."""
    change = case.change("trainable")
    late = change.names if change is not None and change.after < change.before else ()
    names = [n for n in dict.fromkeys([*case.standing("frozen"), *late]) if not _norm(case, n)]
    names = [n for n in names if not _whole_model(case, n, names)]
    if not names:
        return None
    frozen = {owner(name) for name in names}
    holders = [layer for layer in case.ordered if layer.params and not is_norm(layer)]
    trained = [case.depth(layer.path) for layer in holders if layer.path not in frozen]
    if not trained:
        return _nothing_trains(case, names, change if late else None)
    # People freeze the first part of a network on purpose, hardly its middle or its end.
    depths = [case.depth(path) for path in frozen]
    last = min(depths) > max(trained)
    weigh = Weighing()
    state = verb(names, "has requires_grad=False and is", "have requires_grad=False and are")
    weigh.speaks(f"{listing(names)} {state} used in the forward pass", 1.5, len(names), 0)
    if late and change is not None:
        weigh_change(case, weigh, change)
    if max(depths) < min(trained):
        weigh.against("only the first part of the network is frozen, as with a pretrained backbone", 3.5)
    elif last:
        weigh.speaks("it is the last part of the network that is frozen, which nothing can make up for", 2.5)
    else:
        weigh.speaks("trained layers stand before and after the frozen ones", 3.0)
    # Adapters and trained heads freeze most of a model on purpose.
    share = _share(case, names)
    between = not last and max(depths) >= min(trained)
    if _adapted(case, frozen):
        weigh.against("small trained weights accompany the frozen ones, as with adapters", 6.0)
    elif share > 0.5 and between and len(frozen) <= FEW_LAYERS:
        weigh.against(
            f"{percent(share)} of the parameters are frozen, as when most of a model is kept", 1.0, share, 0.5
        )
    elif share > 0.5 and not last:  # a backbone is not trained under a fixed output layer
        weigh.against(
            f"{percent(share)} of the parameters are frozen, as when adapters or a head are trained", 4.0, share, 0.5
        )
    if all(MEANT.search(name) for name in names):
        weigh.against("by its name it is a part that is usually frozen on purpose", 2.5, names[0])
    if len(names) < sum(1 for n in case.param_names if owner(n) in frozen):
        weigh.against("the layer's other parameters are trained", 1.0)
    layers = sorted(frozen, key=case.depth)
    thaw = "\n".join(f"model.get_submodule({path!r}).requires_grad_(True)" for path in layers)
    return weigh.conclude(
        f"{verb(layers, 'a frozen layer', 'frozen layers')} among trained ones: {listing(layers)}"
        + (f", frozen {change.when}" if late and change is not None else ""),
        Remedy(
            "Unfreeze the layer before the optimizer is built; if it should be frozen, ignore this.",
            thaw,
            (once_made(thaw),),
        ),
        layer=owner(names[0]),
        step=began(case, change) if late and change is not None else 0,
        since=change.since if late and change is not None else None,
        failure=case.trouble.name if late and case.trouble.any else "untrained layer",
    )


def _adapted(case: Case, frozen: set[str]) -> bool:
    """Return True if frozen layers have small trained weights in the same part of the model, in several parts."""
    sizes = _sizes(case)
    adapted = 0
    for path in frozen:
        part = owner(path)
        if not part:
            continue
        beside = [n for n in sizes if n.startswith(f"{part}.") and owner(n) not in frozen]
        mine = sum(size for n, size in sizes.items() if owner(n) == path)
        adapted += 0 < sum(sizes[n] for n in beside) < SMALL_SHARE * mine
    return adapted >= PARTS and adapted * 2 >= len(frozen)


def _nothing_trains(case: Case, names: list[str], change: ChangePoint | None) -> Finding:
    weigh, every = Weighing(), len(names) >= len(case.param_names)
    state = "all" if every else f"{len(names)} of the {len(case.param_names)}"
    weigh.speaks(f"{state} parameters of the model are frozen, and the optimizer steps", 6.0, len(names), 0)
    if change is not None:
        weigh_change(case, weigh, change)
    when = f" since a change {change.when}" if change is not None else ""
    rest = "the optimizer has nothing that it could change" if every else "no layer is left that could be trained"
    return weigh.conclude(
        f"parameters that are {'all ' * every}frozen{when}: {rest}",
        Remedy(
            "Unfreeze what should be trained.", "model.requires_grad_(True)", (once_made("model.requires_grad_(True)"),)
        ),
        step=began(case, change) if change is not None else 0,
        since=change.since if change is not None else None,
        failure=case.trouble.name if change is not None and case.trouble.any else "training without effect",
    )


def _norm(case: Case, name: str) -> bool:
    layer = case.layout.by_path.get(owner(name))
    return layer is not None and is_norm(layer)


def _model_of(case: Case, name: str) -> str | None:
    layer = case.layout.by_path.get(owner(name))
    return layer.model if layer is not None else None


def _whole_model(case: Case, name: str, names: list[str]) -> bool:
    """Return True if a parameter belongs to a model that is frozen as a whole while there is another model."""
    model = _model_of(case, name)
    if len({layer.model for layer in case.layout.layers}) < 2:
        return False
    mine = [n for n in case.param_names if _model_of(case, n) == model and not _norm(case, n)]
    return set(mine) <= set(names)


def _sizes(case: Case) -> dict[str, float]:
    """Return the number of elements of each parameter, where it was recorded."""
    sizes: dict[str, float] = {}
    for row in case.layout.rows("param"):
        total = case.run.series(row, "total").finite().values
        if len(total):
            sizes[case.layout.sites[row].label] = float(total[0])
    return sizes


def _share(case: Case, names: list[str]) -> float:
    """Return the share of the parameters that are frozen: by elements where sizes were recorded, else by tensors."""
    sizes = _sizes(case)
    if sizes and all(name in sizes for name in case.param_names):
        return sum(sizes.get(n, 0.0) for n in names) / sum(sizes.values())
    return len(names) / max(len(case.param_names), len(names), 1)


CAUSE = Cause(
    module=__name__,
    title="Layer frozen that should train",
    tier=Tier.CERTAIN,
    explains=STALL | UNITS | {"loss_divergence"},
    judge=judge,
    place="layer",
    page=__doc__ or "",
)
