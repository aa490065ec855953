"""Attention as Keras has it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class MultiHeadAttention(nn.Module):
    """Let each step of `x` read the steps of `memory` by several heads, each with queries and keys of `key_dim`."""

    def __init__(
        self,
        size: int,
        num_heads: int,
        key_dim: int,
        *,
        value_dim: int | None = None,
        memory_size: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        value_dim, memory_size = value_dim or key_dim, memory_size or size
        self.num_heads, self.dropout = num_heads, dropout
        self.query = nn.Linear(size, num_heads * key_dim, bias=bias)
        self.key = nn.Linear(memory_size, num_heads * key_dim, bias=bias)
        self.value = nn.Linear(memory_size, num_heads * value_dim, bias=bias)
        self.output = nn.Linear(num_heads * value_dim, size, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights as Keras does, whose kernels have an axis for the heads."""
        for linear in (self.query, self.key, self.value, self.output):
            outside = linear.out_features if linear is self.output else linear.in_features
            inside = (linear.in_features if linear is self.output else linear.out_features) // self.num_heads
            fans = (inside + outside) * self.num_heads if linear is self.output else outside * (self.num_heads + inside)
            limit = (6 / fans) ** 0.5
            nn.init.uniform_(linear.weight, -limit, limit)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        *,
        mask: torch.Tensor | None = None,
        own_mask: torch.Tensor | None = None,
        causal: bool = False,
    ) -> torch.Tensor:
        memory = x if memory is None else memory
        query, key, value = (
            linear(source).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, source in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        allowed = added = None
        if mask is not None:
            allowed = mask[:, None, None, :]
        if own_mask is not None:  # an empty place reads all steps alike
            own = own_mask[:, None, :, None]
            allowed = own if allowed is None else allowed & own
        if causal:
            earlier = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool, device=x.device).tril()
            allowed = earlier if allowed is None else allowed & earlier
        if allowed is not None:  # a sum, so that a sample of empty places alone gives numbers
            added = torch.zeros_like(allowed, dtype=x.dtype).masked_fill(~allowed, torch.finfo(x.dtype).min / 2)
        dropout = self.dropout if self.training else 0.0
        read = F.scaled_dot_product_attention(query, key, value, attn_mask=added, dropout_p=dropout)
        if allowed is not None and self.dropout:  # with a dropout, Keras reads nothing there
            read = read * allowed.any(dim=-1, keepdim=True)
        joined: torch.Tensor = self.output(read.transpose(1, 2).flatten(2))
        return joined


class DotAttention(nn.Module):
    """Let each step of `x` read the steps of `memory`, weighed by dot products with them."""

    def __init__(self, *, use_scale: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(())) if use_scale else None
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        *,
        mask: torch.Tensor | None = None,
        own_mask: torch.Tensor | None = None,
        causal: bool = False,
    ) -> torch.Tensor:
        memory = x if memory is None else memory
        scores = x @ memory.transpose(1, 2)
        if self.scale is not None:
            scores = self.scale * scores
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, :], torch.finfo(x.dtype).min / 2)
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, torch.finfo(x.dtype).min / 2)
        weights: torch.Tensor = self.dropout(torch.softmax(scores, dim=-1))
        read = weights @ memory
        return read if own_mask is None else read.masked_fill(~own_mask.unsqueeze(-1), 0)


class SqueezeExcitation(nn.Module):
    """Weigh each channel by a small network of the means of all channels."""

    def __init__(self, channels: int, ratio: int) -> None:
        super().__init__()
        middle = max(1, channels // ratio)
        self.squeeze = nn.Linear(channels, middle)
        self.excite = nn.Linear(middle, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = x.flatten(2).mean(dim=2) if x.ndim > 2 else x
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(means))))
        return x * gate.reshape(*gate.shape, *(1,) * (x.ndim - 2))
