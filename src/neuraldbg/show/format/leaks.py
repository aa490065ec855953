"""Tensors that live on from step to step, in words: what they are, where they were made and are kept, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.nouns.facts.growth import LEAST_COUNTS
from neuraldbg.show.format.safe_text import number, shortest
from neuraldbg.show.format.unit_amounts import amount

if TYPE_CHECKING:
    from neuraldbg.nouns.facts.growth import GrowthFact, Survivors
    from neuraldbg.nouns.facts.kinds import SourceLine


def kind_of(one: Survivors) -> str:
    """Write what the tensors are, with shape and dtype: Tensor with its graph, float32[32, 10]."""
    kind = f"{one.type} that becomes larger" if one.grows else one.type
    return f"{kind}, {one.dtype}[{', '.join(map(str, one.shape))}]" if one.dtype else kind


def rate_of(one: Survivors) -> str:
    """Write how many are added in a step, and their bytes."""
    if one.grows:
        return f"{amount(one.bytes_per_step, 'B')} a step"
    return f"{number(float(f'{one.per_step:.3g}'))} a step, {amount(one.bytes_per_step, 'B')} a step"


def place_of(line: SourceLine | None) -> str:
    """Write file and line; "" if it is not known."""
    return "" if line is None else f"{shortest(line.file)}:{line.number}"


def remedy_of(one: Survivors) -> str:
    """Write what to change, with the program's own name for what keeps the tensors where it is known."""
    if one.mended and one.with_graph:
        return f"Write {one.mended}"
    if not one.dtype:  # a hook, or another object that is no tensor
        return "Make it once, before the loop, or remove it when its step is over"
    holder = f" in {one.holder}" if one.holder else ""
    if one.with_graph:
        single = not one.shape or max(one.shape) == 1
        how = "its number, loss.item()," if single else "it without its graph, x.detach(),"
        return f"Keep {how}{holder}: as it is, its graph stays alive with it"
    return f"Remove what is not needed any more{holder or ' from what keeps it'}, or move it from a GPU to the CPU"


def span_of(growth: GrowthFact) -> str:
    """Write between which steps tensors were counted."""
    return f"counted from step {growth.first:,} to {growth.last:,}"


def none_found(growth: GrowthFact) -> str:
    """Write what is known of tensors that live on where none was found; "" if some were."""
    if growth.survivors:
        return ""
    if growth.searched:
        return f"No kind of tensors becomes more from step to step, {span_of(growth)}"
    if growth.counts >= LEAST_COUNTS:
        return "No growing tensors were found, but there were too many objects to look at all of them"
    if growth.counts:
        return "Tensors were counted too few times to see whether they become more"
    if growth.by_hand:
        return "Only memory was given: what keeps it was not searched for"
    return "Tensors were not counted: neuraldbg run --profile, or NeuralDbg(model, profile=True), counts them"


def risen_notes(growth: GrowthFact, *, span: bool) -> list[str]:
    """Write by how much resident and device memory grew from step to step, with the steps if ``span``."""
    first, last = growth.slope_steps
    told = f", from step {first:,} to {last:,}" if span else ""
    return [
        f"{name[0].upper()}{name[1:]} grew by {amount(slope, 'B')} a step{told}"
        for name, slope in growth.risen().items()
    ]
