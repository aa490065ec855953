"""The values that checks read of a tensor: a sample of its elements, in ordinary memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.statistics import operation

SAMPLE = 16_384
"""Elements that are read at most, evenly spaced."""
DISTINCT = 4
"""Different values that are told apart; contracts ask for two or three."""


def sample(x: Any) -> Tensor | None:
    """Return elements of a tensor, shape (n,), n at most ``SAMPLE``; None if there are none, or they cannot be read."""
    held = tensor_memory.readable(x)
    if held is None or held.numel() == 0:
        return None
    return operation.spaced(held.detach(), -(-held.numel() // SAMPLE), SAMPLE)


def shape(x: Any) -> tuple[int, ...]:
    """Return the shape of a tensor; () of anything else."""
    held = tensor_memory.readable(x)
    return () if held is None else tuple(held.shape)


def distinct(x: Any) -> set[float] | None:
    """Return the values of a tensor; None if there are more than ``DISTINCT``, or none that can be read."""
    held = sample(x)
    if held is None or held.is_complex():
        return None
    found = torch.unique(held)
    return {float(value) for value in found.tolist()} if len(found) <= DISTINCT else None


def span(x: Any) -> tuple[float, float] | None:
    """Return the smallest and the largest finite element; None if there is none."""
    held = sample(x)
    if held is None or held.is_complex():
        return None
    held = held.double()
    held = held[held.isfinite()]
    return (float(held.min()), float(held.max())) if len(held) else None


def rows_sum_to_one(x: Any, dim: int = -1, *, exponentials: bool = False) -> bool | None:
    """Return True if the rows of a tensor sum to 1, None if it has none, or only of one element. ``exponentials`` sums
    exp(x).
    """
    held = tensor_memory.readable(x)
    if held is None or held.dim() == 0 or held.shape[dim] < 2 or not tensor_memory.floating(held):
        return None
    with torch.no_grad():
        rows = held.detach().movedim(dim, -1)
        rows = rows.reshape(-1, rows.shape[-1])[: max(1, SAMPLE // rows.shape[-1])].double()
        if len(rows) == 0 or not bool(rows.isfinite().any()):
            return None
        sums = (rows.exp() if exponentials else rows).sum(-1)
        return bool(((sums - 1).abs() < NEAR).all())


NEAR = 0.02
"""Largest distance of a sum from 1: numbers of 16 bits, a small constant under a logarithm."""


def same(x: Any, y: Any) -> bool:
    """Return True if two tensors of more than one row have the same elements."""
    one, other = sample(x), sample(y)
    if one is None or other is None or shape(x) != shape(y) or len(one) < 2:
        return False
    return bool(torch.equal(one, other))


def all_pairs(one: tuple[int, ...], other: tuple[int, ...]) -> str:
    """Return the words for numbers of shape (N) that go with numbers of shape (N, 1), each with each; "" for others."""
    flat, column = sorted((one, other), key=len)
    if len(flat) != 1 or flat[0] < 2 or column != (*flat, 1):
        return ""
    return f"numbers of shape {list(one)} with numbers of shape {list(other)}: {flat[0] ** 2:,} in place of {flat[0]}"


def words(values: set[float]) -> str:
    """Write a few values: ``values of 0 and 1``."""
    told = [f"{value:g}" for value in sorted(values)]
    return f"values of {', '.join(told[:-1])} and {told[-1]}" if len(told) > 1 else f"nothing but {told[0]}"
