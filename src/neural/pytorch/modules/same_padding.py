"""Keras's `same` padding for inputs whose size only the data tell."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def pad_same(x: torch.Tensor, kernel: tuple[int, ...], strides: tuple[int, ...], value: float = 0.0) -> torch.Tensor:
    """Add what the last windows need, one place more at the end if it is odd."""
    pads: list[int] = []
    for size, width, stride in zip(reversed(x.shape[2:]), reversed(kernel), reversed(strides), strict=True):
        total = max((-(-size // stride) - 1) * stride + width - size, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads, value=value)


class SameAveragePool(nn.Module):
    """Take the mean of each window, in which added places do not count."""

    def __init__(self, kernel: tuple[int, ...], strides: tuple[int, ...]) -> None:
        super().__init__()
        self.kernel, self.strides = kernel, strides

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(self.kernel) - 1]
        total = pool(pad_same(x, self.kernel, self.strides), self.kernel, self.strides)
        share = pool(pad_same(torch.ones_like(x), self.kernel, self.strides), self.kernel, self.strides)
        return total / share
