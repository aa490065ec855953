"""Readings of how the parts of a program are wired: cuts in the graph, and names that show an intention."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg.nouns.facts.cuts import CutsFact
from neuraldbg.nouns.facts.dry import DryFact

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.nouns.facts.kinds import SourceLine

MEANT = re.compile(
    r"backbone|encoder|pretrain|feature|extractor|teacher|target|(^|[._])ema|momentum|shadow|frozen|freeze|base_|embed|"
    r"vgg|resnet|vit|bert|clip|lpips|percept|inception|dino|wav2vec|reference|(^|[._])ref|(^|[._])old|prior|tokeniz|critic_t|key",
    re.IGNORECASE,
)
"""Pattern of the names of parts that people leave without gradients, or out of the model, on purpose."""


PART = re.compile(r"encoder|backbone|features?|extractor|embed(ding|der)?|resnet|vit|bert|vgg|clip", re.IGNORECASE)
"""Pattern of the names among ``MEANT`` that are fixed on purpose only if the part is pretrained."""
_COUNT = 50
_UNIFORM = (0.54, 0.62)
"""Range of rms over largest size for numbers drawn uniformly from (-a, a): 1 / sqrt(3) = 0.577, with the scatter of 50
numbers."""


def as_drawn(case: Case, layers: list[str]) -> bool:
    """Return True if all weight matrices of these layers are uniform in (-a, a), as torch initialises them. Training
    gives weights tails.
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


def dry(case: Case) -> DryFact | None:
    """Return the DRY fact if nearly all backward passes reached no parameter; else None."""
    fact = case.run.known(DryFact)
    if fact is None or fact.dry < 2 or fact.dry < 0.9 * fact.backwards:
        return None
    return fact


def cuts(case: Case) -> tuple[CutsFact, ...]:
    """Return the newest CUTS facts that have a cut, one for each model, without layers that got a gradient later."""
    found = []
    for fact in case.run.known_each(CutsFact):
        # the record knows gradients of all steps, the fact those up to its reading
        unreached = tuple(path for path in fact.unreached if not _got_gradient(case, path))
        cut = fact.cut if fact.cut is not None and fact.cut.after in unreached else None
        off = {path: place for path, place in fact.no_grad.items() if path in unreached}
        if cut is not None or off:
            found.append(replace(fact, unreached=unreached, cut=cut, no_grad=off))
    return tuple(found)


def _got_gradient(case: Case, layer: str) -> bool:
    return any(len(case.run.series(row, "rms")) for row in case.layout.rows("param_grad", layer))


def cut_off(case: Case) -> set[str]:
    """Return the layers without a gradient before a known cut, and those that ran under ``no_grad``."""
    found: set[str] = set()
    for fact in cuts(case):
        found |= set(fact.no_grad)
        if fact.cut is not None:
            last = case.depth(fact.cut.before)
            before = [path for path in fact.unreached if case.depth(path) <= last]
            found |= {fact.cut.after, *before}
    return found


def access(path: str, holder: str = "self") -> str:
    """Write a layer's or parameter's path as code: ``self.blocks[0].fc`` for ``blocks.0.fc``."""
    return "".join([holder, *(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split(".") if part)])


def line(place: SourceLine | None) -> str:
    """Write a source line as ``train.py:12: x = self.fc2(x.detach())``; empty if it is unknown."""
    if place is None:
        return ""
    name = place.file.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{place.number}: {place.text}" if place.text else f"{name}:{place.number}"
