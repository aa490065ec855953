"""Recurrent layers that run step by step: with other activations, recurrent dropout, empty places, or convolutions in
place of matrices.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


class SteppedRecurrent(nn.Module):
    """Read (batch, steps, features) step by step; a step that is an empty place keeps the state."""

    gates = 1
    states = 1

    def __init__(
        self,
        features: int,
        units: int,
        *,
        kernel: tuple[int, ...] = (),
        activation: Callable[[torch.Tensor], torch.Tensor] = torch.tanh,
        recurrent_activation: Callable[[torch.Tensor], torch.Tensor] = torch.sigmoid,
        use_bias: bool = True,
        return_sequences: bool = False,
        go_backwards: bool = False,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.units, self.activation, self.recurrent_activation = units, activation, recurrent_activation
        self.return_sequences, self.go_backwards = return_sequences, go_backwards
        self.dropout, self.recurrent_dropout = dropout, recurrent_dropout
        self.weight_ih = nn.Parameter(torch.empty(self.gates * units, features, *kernel))
        self.weight_hh = nn.Parameter(torch.empty(self.gates * units, units, *kernel))
        self.bias = nn.Parameter(torch.zeros(self.gates * units)) if use_bias else None
        nn.init.xavier_uniform_(self.weight_ih)
        nn.init.orthogonal_(self.weight_hh)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.go_backwards:
            x, mask = x.flip(1), None if mask is None else mask.flip(1)
        if self.dropout and self.training:  # the same features in all steps
            x = x * F.dropout(torch.ones_like(x[:, :1]), self.dropout)
        projected = self.project(x)
        states = [projected.new_zeros(x.shape[0], self.units, *projected.shape[3:]) for _ in range(self.states)]
        kept = F.dropout(torch.ones_like(states[0]), self.recurrent_dropout, self.training)
        outputs = []
        for step in range(x.shape[1]):
            found = self.step(projected[:, step], kept * states[0], states)
            if mask is not None:
                there = mask[:, step, None]
                found = [torch.where(there, new, old) for new, old in zip(found, states, strict=True)]
            states = found
            outputs.append(states[0])
        return torch.stack(outputs, dim=1) if self.return_sequences else states[0]

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the inputs of all steps add to the gates."""
        return F.linear(x, self.weight_ih, self.bias)

    def recur(self, read: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Return what the output before adds to gates."""
        return F.linear(read, weight, bias)

    def step(self, projected: torch.Tensor, read: torch.Tensor, states: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the next states, of which the first is the output; `read` is the output before with its dropout."""
        raise NotImplementedError


class SteppedSimpleRNN(SteppedRecurrent):
    """Read a sequence by a plain recurrence."""

    def step(self, projected: torch.Tensor, read: torch.Tensor, states: list[torch.Tensor]) -> list[torch.Tensor]:
        return [self.activation(projected + self.recur(read, self.weight_hh))]


class SteppedLSTM(SteppedRecurrent):
    """Read a sequence by long short-term memory."""

    gates = 4
    states = 2

    def __init__(self, features: int, units: int, *, unit_forget_bias: bool = True, **options: object) -> None:
        super().__init__(features, units, **options)  # type: ignore[arg-type]
        if self.bias is not None and unit_forget_bias:
            nn.init.ones_(self.bias[units : 2 * units])

    def step(self, projected: torch.Tensor, read: torch.Tensor, states: list[torch.Tensor]) -> list[torch.Tensor]:
        entry, forget, new, output = (projected + self.recur(read, self.weight_hh)).chunk(4, dim=1)
        cell = self.recurrent_activation(forget) * states[1] + self.recurrent_activation(entry) * self.activation(new)
        return [self.recurrent_activation(output) * self.activation(cell), cell]


class SteppedGRU(SteppedRecurrent):
    """Read a sequence by gated recurrent units: reset, update, new."""

    gates = 3

    def __init__(
        self, features: int, units: int, *, use_bias: bool = True, reset_after: bool = True, **options: object
    ) -> None:
        super().__init__(features, units, use_bias=use_bias, **options)  # type: ignore[arg-type]
        self.reset_after = reset_after
        self.bias_hh = nn.Parameter(torch.zeros(3 * units)) if use_bias and reset_after else None

    def step(self, projected: torch.Tensor, read: torch.Tensor, states: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.reset_after:
            recurrent = self.recur(read, self.weight_hh, self.bias_hh)
        else:
            recurrent = self.recur(read, self.weight_hh[: 2 * self.units])
        gates = self.recurrent_activation(projected[:, : 2 * self.units] + recurrent[:, : 2 * self.units])
        reset, update = gates.chunk(2, dim=1)
        if self.reset_after:
            inner = reset * recurrent[:, 2 * self.units :]
        else:
            inner = self.recur(reset * read, self.weight_hh[2 * self.units :])
        new = self.activation(projected[:, 2 * self.units :] + inner)
        return [update * states[0] + (1 - update) * new]


class RecurrentConvolution(SteppedRecurrent):
    """Read (batch, steps, height, width, channels) step by step, with convolutions in place of matrices."""

    def __init__(
        self, channels: int, filters: int, kernel: tuple[int, int], *, padding: str = "valid", **options: object
    ) -> None:
        super().__init__(channels, filters, kernel=kernel, **options)  # type: ignore[arg-type]
        self.padding = padding

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(x.movedim(-1, 2), mask).movedim(-3, -1)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        images = x.flatten(0, 1)
        images = self.padded(images) if self.padding == "same" else images
        projected: torch.Tensor = F.conv2d(images, self.weight_ih, self.bias).unflatten(0, x.shape[:2])
        return projected

    def recur(self, read: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return F.conv2d(self.padded(read), weight, bias)

    def padded(self, x: torch.Tensor) -> torch.Tensor:
        """Return images to which a convolution gives their size, with one place more at the end if it is odd."""
        height, width = self.weight_ih.shape[-2:]
        return F.pad(x, ((width - 1) // 2, width // 2, (height - 1) // 2, height // 2))


class ConvLSTM2D(RecurrentConvolution, SteppedLSTM):
    """Read images by long short-term memory."""


class ConvGRU2D(RecurrentConvolution, SteppedGRU):
    """Read images by gated recurrent units: reset, update, new."""

    def __init__(self, channels: int, filters: int, kernel: tuple[int, int], **options: object) -> None:
        super().__init__(channels, filters, kernel, reset_after=False, **options)  # type: ignore[arg-type]
