"""Recurrent layers whose matrices are convolutions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


class RecurrentConvolution(nn.Module):
    """Read (batch, steps, height, width, channels) step by step, with convolutions in place of matrices."""

    gates = 1
    states = 1

    def __init__(
        self,
        channels: int,
        filters: int,
        kernel: tuple[int, int],
        *,
        padding: str = "valid",
        activation: Callable[[torch.Tensor], torch.Tensor] = torch.tanh,
        recurrent_activation: Callable[[torch.Tensor], torch.Tensor] = torch.sigmoid,
        use_bias: bool = True,
        return_sequences: bool = False,
        go_backwards: bool = False,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.filters, self.padding = filters, padding
        self.activation, self.recurrent_activation = activation, recurrent_activation
        self.return_sequences, self.go_backwards = return_sequences, go_backwards
        self.dropout, self.recurrent_dropout = dropout, recurrent_dropout
        self.weight_ih = nn.Parameter(torch.empty(self.gates * filters, channels, *kernel))
        self.weight_hh = nn.Parameter(torch.empty(self.gates * filters, filters, *kernel))
        self.bias = nn.Parameter(torch.zeros(self.gates * filters)) if use_bias else None
        nn.init.xavier_uniform_(self.weight_ih)
        nn.init.orthogonal_(self.weight_hh)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x.flip(1) if self.go_backwards else x).permute(0, 1, 4, 2, 3)
        if self.dropout and self.training:
            x = x * F.dropout(torch.ones_like(x[:, :1]), self.dropout)
        images = x.flatten(0, 1)
        images = self.padded(images) if self.padding == "same" else images
        projected = F.conv2d(images, self.weight_ih, self.bias).unflatten(0, x.shape[:2])
        states = [projected.new_zeros(len(x), self.filters, *projected.shape[-2:]) for _ in range(self.states)]
        kept = F.dropout(torch.ones_like(states[0]), self.recurrent_dropout, self.training)
        outputs = []
        for step in range(x.shape[1]):
            states = self.step(projected[:, step], kept * states[0], states)
            outputs.append(states[0].permute(0, 2, 3, 1))
        return torch.stack(outputs, dim=1) if self.return_sequences else outputs[-1]

    def padded(self, x: torch.Tensor) -> torch.Tensor:
        """Return images to which a convolution gives their size, with one place more at the end if it is odd."""
        height, width = self.weight_ih.shape[-2:]
        return F.pad(x, ((width - 1) // 2, width // 2, (height - 1) // 2, height // 2))

    def step(self, projected: torch.Tensor, read: torch.Tensor, states: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the next states, of which the first is the output."""
        raise NotImplementedError


class ConvLSTM2D(RecurrentConvolution):
    """Read images by long short-term memory."""

    gates = 4
    states = 2

    def __init__(self, channels: int, filters: int, kernel: tuple[int, int], **options: object) -> None:
        super().__init__(channels, filters, kernel, **options)  # type: ignore[arg-type]
        if self.bias is not None:
            nn.init.ones_(self.bias[filters : 2 * filters])

    def step(self, projected: torch.Tensor, read: torch.Tensor, states: list[torch.Tensor]) -> list[torch.Tensor]:
        recurrent = F.conv2d(self.padded(read), self.weight_hh)
        entry, forget, new, output = (projected + recurrent).chunk(4, dim=1)
        cell = self.recurrent_activation(forget) * states[1] + self.recurrent_activation(entry) * self.activation(new)
        return [self.recurrent_activation(output) * self.activation(cell), cell]


class ConvGRU2D(RecurrentConvolution):
    """Read images by gated recurrent units: reset, update, new."""

    gates = 3

    def step(self, projected: torch.Tensor, read: torch.Tensor, states: list[torch.Tensor]) -> list[torch.Tensor]:
        both = 2 * self.filters
        recurrent = F.conv2d(self.padded(read), self.weight_hh[:both])
        reset, update = self.recurrent_activation(projected[:, :both] + recurrent).chunk(2, dim=1)
        inner = F.conv2d(self.padded(reset * read), self.weight_hh[both:])
        new = self.activation(projected[:, both:] + inner)
        return [update * states[0] + (1 - update) * new]
