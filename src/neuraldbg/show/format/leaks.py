"""Tensors that live on from step to step, in words: what they are, where they were made and are kept, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.show.format.safe_text import number, shortest
from neuraldbg.show.format.unit_amounts import amount

if TYPE_CHECKING:
    from neuraldbg.nouns.facts.growth import GrowthFact, Survivors
    from neuraldbg.nouns.facts.kinds import SourceLine


def kind_of(one: Survivors) -> str:
    """Write what the tensors are, with shape and dtype: Tensor with its graph, float32[32, 10]."""
    return f"{one.type}, {one.dtype}[{', '.join(map(str, one.shape))}]" if one.dtype else one.type


def rate_of(one: Survivors) -> str:
    """Write how many are added in a step, and their bytes."""
    return f"{number(float(f'{one.per_step:.3g}'))} a step, {amount(one.bytes_per_step, 'B')} a step"


def place_of(line: SourceLine | None) -> str:
    """Write file and line; "" if it is not known."""
    return "" if line is None else f"{shortest(line.file)}:{line.number}"


def remedy_of(one: Survivors) -> str:
    """Write what to change, with the program's own name for what keeps the tensors where it is known."""
    if one.mended:
        return f"Write {one.mended}"
    if not one.dtype:  # a hook, or another object that is no tensor
        return "Make it once, before the loop, or remove it when its step is over"
    holder = f" in {one.holder}" if one.holder else ""
    if one.with_graph:
        single = not one.shape or max(one.shape) == 1
        how = "its number, loss.item()," if single else "it without its graph, x.detach(),"
        return f"Keep {how}{holder}: as it is, its graph stays alive with it"
    return f"Remove what is not needed any more{holder or ' from what keeps it'}, or move it to the CPU"


def span_of(growth: GrowthFact) -> str:
    """Write between which steps tensors were counted."""
    return f"counted from step {growth.first:,} to {growth.last:,}"
