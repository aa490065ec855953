"""Noise that disturbs a training."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class GaussianNoise(nn.Module):
    """Add normal noise while training."""

    def __init__(self, stddev: float) -> None:
        super().__init__()
        self.stddev = stddev

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.stddev * torch.randn_like(x) if self.training else x


class GaussianDropout(nn.Module):
    """Multiply by normal noise around 1 while training."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.stddev = (rate / (1 - rate)) ** 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + self.stddev * torch.randn_like(x)) if self.training else x


class SharedDropout(nn.Module):
    """Drop values together: along the axes where `shape` is 1."""

    def __init__(self, rate: float, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.rate, self.shape = rate, shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = self.shape if len(self.shape) == x.ndim else (len(x), *self.shape)
        return x * F.dropout(x.new_ones(shape), self.rate, self.training)
