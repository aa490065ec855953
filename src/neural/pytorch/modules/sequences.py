"""Positions, masks and means of sequences."""

from __future__ import annotations

import math

import torch
from torch import nn


class PositionalEncoding(nn.Module):
    """Add sines and cosines of the position to each step."""

    table: torch.Tensor

    def __init__(self, size: int, max_len: int = 5000, dropout: float = 0.0) -> None:
        super().__init__()
        angles = torch.arange(max_len).unsqueeze(1) * torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size))
        table = torch.zeros(max_len, size)
        table[:, 0::2] = torch.sin(angles)
        table[:, 1::2] = torch.cos(angles[:, : size // 2])
        self.register_buffer("table", table, persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shifted: torch.Tensor = self.dropout(x + self.table[: x.shape[1]])
        return shifted


def masked_mean(x: torch.Tensor, mask: torch.Tensor, keepdim: bool = False) -> torch.Tensor:
    """Return the mean of the steps that are no empty places, 0 of a sample of empty places alone."""
    weights = mask.to(x.dtype).unsqueeze(-1)
    return (x * weights).sum(dim=1, keepdim=keepdim) / weights.sum(dim=1, keepdim=keepdim).clamp(min=1)


def empty_places(mask: torch.Tensor) -> torch.Tensor:
    """Return True at empty places, but nowhere in a sample of nothing else: attention to nothing gives NaN."""
    return ~mask & mask.any(dim=1, keepdim=True)


def causal_mask(x: torch.Tensor) -> torch.Tensor:
    """Return a square that is true where a step would read a later one."""
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)


def run_all(layers: nn.ModuleList, x: torch.Tensor, *others: torch.Tensor, **masks: torch.Tensor) -> torch.Tensor:
    """Run layers after one another, each with the same second input and the same masks."""
    for layer in layers:
        x = layer(x, *others, **masks)
    return x
