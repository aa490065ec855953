"""What the record says about how the parts of a program are wired: cuts in the graph, names that tell an intention."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case

MEANT = re.compile(
    r"backbone|encoder|pretrain|feature|extractor|teacher|target|(^|[._])ema|momentum|shadow|frozen|freeze|base_|embed|"
    r"vgg|resnet|vit|bert|clip|lpips|percept|inception|dino|wav2vec|reference|(^|[._])ref|(^|[._])old|prior|tokeniz|critic_t|key",
    re.IGNORECASE,
)
"""Names of parts that people leave without gradients, or out of the model, on purpose."""


PART = re.compile(r"encoder|backbone|features?|extractor|embed(ding|der)?|resnet|vit|bert|vgg|clip", re.IGNORECASE)
"""Those of them that are fixed on purpose only where they come trained."""
_COUNT = 50
_UNIFORM = (0.54, 0.62)
"""rms over largest size of numbers drawn evenly from (-a, a): 1 / sqrt(3) = 0.577, and what 50 of them leave open."""


def as_drawn(case: Case, layers: list[str]) -> bool:
    """Return True if all weight matrices of these layers are evenly spread in (-a, a), as torch initialises them.
    Training gives weights tails.
    """
    found = []
    for path in layers:
        for row in case.layout.rows("param", path, "weight"):
            sizes, low, high = (case.run.series(row, name).finite().values for name in ("rms", "min", "max"))
            count = case.run.series(row, "total").finite().values
            if not len(sizes) or not len(low) or not len(high) or not len(count) or count[0] < _COUNT:
                continue
            top, bottom = float(high[0]), -float(low[0])
            if low[0] < high[0]:
                found.append(
                    min(top, bottom) > 0.9 * max(top, bottom) > 0
                    and _UNIFORM[0] < float(sizes[0]) / max(top, bottom) < _UNIFORM[1]
                )
    return bool(found) and all(found)


def dry(case: Case) -> dict[str, Any] | None:
    """The DRY fact, if nearly all backward passes reached no parameter."""
    fact = case.run.fact(FactKey.DRY.value)
    if fact is None or fact["dry"] < 2 or fact["dry"] < 0.9 * fact["backwards"]:
        return None
    return fact


def cuts(case: Case) -> tuple[dict[str, Any], ...]:
    """The CUTS facts as last seen that name a cut, one for each model."""
    latest = {fact.value["model"]: fact.value for fact in case.run.facts_of(FactKey.CUTS.value)}
    found = []
    for value in latest.values():
        # the record knows gradients of all steps, the fact those up to its reading
        unreached = [path for path in value["unreached"] if not _got_gradient(case, path)]
        cut = value["cut"] if value["cut"] and value["cut"]["after"] in unreached else None
        off = {path: place for path, place in value["no_grad"].items() if path in unreached}
        if cut or off:
            found.append({**value, "unreached": unreached, "cut": cut, "no_grad": off})
    return tuple(found)


def _got_gradient(case: Case, layer: str) -> bool:
    return any(len(case.run.series(row, "rms")) for row in case.layout.rows("param_grad", layer))


def cut_off(case: Case) -> set[str]:
    """Layers that a known cut keeps from the loss: those before it without a gradient, and those run without."""
    found: set[str] = set()
    for value in cuts(case):
        found |= set(value["no_grad"])
        if value["cut"]:
            last = case.depth(value["cut"]["before"])
            before = [path for path in value["unreached"] if case.depth(path) <= last]
            found |= {value["cut"]["after"], *before}
    return found


def access(path: str, holder: str = "self") -> str:
    """Write a layer's or parameter's path as code: ``self.blocks[0].fc`` for ``blocks.0.fc``."""
    return "".join([holder, *(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split(".") if part)])


def line(place: list[Any] | None) -> str:
    """Write a place as ``train.py:12: x = self.fc2(x.detach())``; empty if it is not known."""
    if not place:
        return ""
    file, number, code = place
    name = str(file).replace("\\", "/").rpartition("/")[2]
    return f"{name}:{number}: {code}" if code else f"{name}:{number}"
