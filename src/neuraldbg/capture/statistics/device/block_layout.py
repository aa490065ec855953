"""The elements of a tensor that a launch reads, as numbers that a kernel can follow: size and cap in, ``Blocks`` out.

The places are those of ``operation.sample``: a tensor of at most ``cap`` elements whole, of a larger one evenly spaced
contiguous blocks. Dense memory is read in memory order, whatever the order of its axes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from neuraldbg.capture.guest.native import dense
from neuraldbg.capture.statistics import operation

if TYPE_CHECKING:
    from torch import Tensor

LANES = operation.BLOCK
"""Neighbouring elements that are read together: one block of a sample. Triton needs a power of two."""


class Blocks(NamedTuple):
    """The places that a launch reads: element ``c`` of block ``v`` is at ``v * step + c``; no gaps in a
    whole tensor.
    """

    taken: int
    """Number of elements that are read."""
    size: int
    """Elements of one block, at most LANES."""
    step: int
    """Elements from the beginning of a block to that of the next."""
    end: int
    """Elements of the memory; the last block may reach beyond this end."""
    total: int
    """Number of blocks."""


@lru_cache(maxsize=4096)
def blocks(numel: int, cap: int) -> Blocks:
    """Return the places that are read of ``numel`` > 0 elements; ``cap`` <= 0 reads all of them."""
    if cap <= 0 or numel <= cap:
        return Blocks(numel, LANES, LANES, numel, -(-numel // LANES))
    number, size = max(cap // operation.BLOCK, 1), min(operation.BLOCK, cap)
    return Blocks(number * size, size, (numel - size) // max(number - 1, 1), numel, number)


def in_order(x: Tensor) -> Tensor:
    """Return dense memory with permuted axes as a 1-D view in memory order; any other tensor unchanged."""
    return x if x.is_contiguous() or not dense(x) else x.as_strided((x.numel(),), (1,))


def sample(x: Tensor, cap: int) -> Tensor:
    """Return the elements that are read of a tensor, 1-D, for torch's operations; ``cap`` <= 0 returns all of it."""
    return operation.sample(in_order(x), cap if cap > 0 else x.numel())


def readable(x: Tensor, cap: int) -> Tensor:
    """Return ``x`` if it is dense, else a small dense tensor with ``operation.sample``'s elements of ``x``."""
    return x if dense(x) else sample(x, cap).resolve_neg().contiguous()
