"""Recurrent layers with Keras's weights: one bias where torch has two, and its order of gates."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class FusedRecurrent(nn.Module):
    """Read (batch, steps, features) by a kernel of torch: the output of the last step, or of all."""

    gates = 1

    def __init__(
        self,
        features: int,
        units: int,
        *,
        use_bias: bool = True,
        return_sequences: bool = False,
        go_backwards: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.return_sequences, self.go_backwards, self.dropout = return_sequences, go_backwards, dropout
        self.weight_ih = nn.Parameter(torch.empty(self.gates * units, features))
        self.weight_hh = nn.Parameter(torch.empty(self.gates * units, units))
        self.bias = nn.Parameter(torch.zeros(self.gates * units)) if use_bias else None
        nn.init.xavier_uniform_(self.weight_ih)
        nn.init.orthogonal_(self.weight_hh)

    def weights(self) -> list[torch.Tensor]:
        """Return the weights in the order in which torch takes them."""
        if self.bias is None:
            return [self.weight_ih, self.weight_hh]
        return [self.weight_ih, self.weight_hh, self.bias, torch.zeros_like(self.bias)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flip(1) if self.go_backwards else x
        if self.dropout and self.training:  # the same features in all steps
            x = x * F.dropout(torch.ones_like(x[:, :1]), self.dropout)
        output = self.run(x, x.new_zeros(1, x.shape[0], self.weight_hh.shape[1]))
        return output if self.return_sequences else output[:, -1]

    def run(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the outputs of all steps."""
        raise NotImplementedError


class LSTM(FusedRecurrent):
    """Read a sequence by long short-term memory."""

    gates = 4

    def __init__(self, features: int, units: int, *, unit_forget_bias: bool = True, **options: bool | float) -> None:
        super().__init__(features, units, **options)  # type: ignore[arg-type]
        if self.bias is not None and unit_forget_bias:
            nn.init.ones_(self.bias[units : 2 * units])

    def run(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        biased = self.bias is not None
        return torch.lstm(x, (state, state), self.weights(), biased, 1, 0.0, self.training, False, True)[0]


class SimpleRNN(FusedRecurrent):
    """Read a sequence by a plain recurrence."""

    def __init__(self, features: int, units: int, *, activation: object = torch.tanh, **options: bool | float) -> None:
        super().__init__(features, units, **options)  # type: ignore[arg-type]
        self.kernel = torch.rnn_relu if activation is torch.relu else torch.rnn_tanh

    def run(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        biased = self.bias is not None
        return self.kernel(x, state, self.weights(), biased, 1, 0.0, self.training, False, True)[0]


class GRU(FusedRecurrent):
    """Read a sequence by gated recurrent units; torch's gates are reset, update, new."""

    gates = 3

    def __init__(self, features: int, units: int, *, use_bias: bool = True, **options: bool | float) -> None:
        super().__init__(features, units, use_bias=use_bias, **options)  # type: ignore[arg-type]
        self.bias_hh = nn.Parameter(torch.zeros(3 * units)) if use_bias else None

    def weights(self) -> list[torch.Tensor]:
        if self.bias is None or self.bias_hh is None:
            return [self.weight_ih, self.weight_hh]
        return [self.weight_ih, self.weight_hh, self.bias, self.bias_hh]

    def run(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        biased = self.bias is not None
        return torch.gru(x, state, self.weights(), biased, 1, 0.0, self.training, False, True)[0]


class Bidirectional(nn.Module):
    """Read a sequence in both directions, and make one output of both."""

    def __init__(self, ahead: nn.Module, back: nn.Module, merge_mode: str = "concat") -> None:
        super().__init__()
        self.ahead, self.back, self.merge_mode = ahead, back, merge_mode

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        masks = () if mask is None else (mask,)
        one, other = self.ahead(x, *masks), self.back(x, *masks)
        if self.back.return_sequences:
            other = other.flip(1)
        both = self.merged(one, other)
        if mask is None or not self.back.return_sequences:
            return both
        return both.masked_fill(~mask.unsqueeze(-1), 0)  # as Keras, in both directions alone

    def merged(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return one output of both directions."""
        if self.merge_mode == "concat":
            return torch.cat([one, other], dim=-1)
        if self.merge_mode == "mul":
            return one * other
        total = one + other
        return total / 2 if self.merge_mode == "ave" else total
