"""The operations of a step equal a count by hand, layer by layer, forward and backward, on models of five kinds."""

from __future__ import annotations

import pytest
import torch
from tests.capture.profiling.profiled_run import layers_of, timing_of, train
from torch import Tensor, nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg

B, T = 4, 6


def counted(model: nn.Module, batch: Tensor) -> tuple[float, dict[str, tuple[float, float]]]:
    timing = train(model, lambda: batch)
    assert timing.flops is not None
    assert timing.uncounted == ()
    return timing.flops, {path: (one.flops, one.backward_flops) for path, one in layers_of(timing).items()}


def test_a_perceptron() -> None:
    total, layers = counted(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5)), torch.randn(B, 8))
    first, second = 2 * B * 8 * 32, 2 * B * 32 * 5
    assert layers["0"] == (first, first)  # nobody needs the gradient of the inputs
    assert layers["1"] == (0, 0)
    assert layers["2"] == (second, 2 * second)
    assert layers[""] == (first + second, first + 2 * second)
    assert total == 2 * first + 3 * second


def test_a_convolutional_net_with_strides_groups_and_a_transposed_one() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Conv2d(8, 12, 3, stride=2, groups=2),
        nn.ConvTranspose2d(12, 12, 2, stride=2),
        nn.Flatten(),
        nn.Linear(12 * 8 * 8, 3),
    )
    total, layers = counted(model, torch.randn(B, 3, 10, 10))
    # Each output of a convolution is a sum over a window of the channels of its group; (10 - 3) // 2 + 1 = 4.
    one = 2 * B * 8 * 10 * 10 * 3 * 9
    two = 2 * B * 12 * 4 * 4 * (8 // 2) * 9
    # Each input of a transposed one is multiplied by a window of each output channel.
    three = 2 * B * 12 * 4 * 4 * 12 * 4
    four = 2 * B * 12 * 8 * 8 * 3
    assert layers["0"] == (one, one)
    assert layers["1"] == (two, 2 * two)
    assert layers["2"] == (three, 2 * three)
    assert layers["4"] == (four, 2 * four)
    assert total == 2 * one + 3 * (two + three + four)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(5, 7, batch_first=True)
        self.head = nn.Linear(7, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def test_a_recurrent_net() -> None:
    total, layers = counted(Recurrent(), torch.randn(B, T, 5))
    inputs, hidden, head = 2 * T * B * 5 * 3 * 7, 2 * B * 7 * 3 * 7, 2 * B * 7 * 2
    assert layers["rnn"][0] == inputs + T * hidden
    # Of the inputs' product the gradient of the weights; of the hidden one both, but for the first state, a constant.
    assert layers["rnn"][1] == inputs + T * hidden + (T - 1) * hidden
    assert layers["head"] == (head, 2 * head)
    assert total == sum(layers[""])


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.attention, self.head = nn.Embedding(11, 16), Attention(16, 2), nn.Linear(16, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        return self.head(x + self.attention(x))


def test_a_transformer() -> None:
    total, layers = counted(Transformer(), torch.randint(0, 11, (B, T)))
    qkv, out, head = 2 * B * T * 16 * 48, 2 * B * T * 16 * 16, 2 * B * T * 16 * 11
    scores = 2 * B * 2 * T * T * 8  # one product of the queries and keys of two heads of eight
    assert layers["token"] == (0, 0)
    assert layers["attention.qkv"] == (qkv, 2 * qkv)
    assert layers["attention"][0] == qkv + out + 2 * scores
    # The fused kernel computes the scores again, then the gradients of scores, values, queries and keys.
    assert layers["attention"][1] == 2 * (qkv + out) + 5 * scores
    assert layers["head"] == (head, 2 * head)
    assert total == sum(layers[""])


class Text(nn.Module):
    """An embedding, a convolution over time, and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.conv, self.twice = nn.Embedding(11, 6), nn.Conv1d(6, 9, 3), nn.Linear(9, 9)

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.relu(self.conv(self.token(tokens).transpose(1, 2))).amax(dim=2)
        return self.twice(self.twice(x))


def test_an_embedding_with_a_convolution_and_a_layer_that_is_used_twice() -> None:
    total, layers = counted(Text(), torch.randint(0, 11, (B, T)))
    conv, linear = 2 * B * 9 * (T - 2) * 6 * 3, 2 * B * 9 * 9
    assert layers["conv"] == (conv, 2 * conv)
    assert layers["twice"] == (2 * linear, 4 * linear)
    assert total == 3 * conv + 6 * linear


def test_a_frozen_layer_has_no_backward_pass_and_a_recomputed_one_counts_as_backward() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3 * 16, 4), nn.Linear(4, 2))
    for parameter in model[:3].parameters():
        parameter.requires_grad_(False)
    _, layers = counted(model, torch.randn(B, 2, 6, 6))
    assert layers["0"] == (2 * B * 3 * 16 * 2 * 9, 0)
    assert layers["2"] == (2 * B * 48 * 4, 0)
    assert layers["3"] == (2 * B * 8, 2 * B * 8)

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(5, 5), nn.Linear(5, 5)

        def forward(self, x: Tensor) -> Tensor:
            return torch.utils.checkpoint.checkpoint(lambda x: self.b(self.a(x)).relu(), x, use_reentrant=False)

    total, _ = counted(Checkpointed(), torch.randn(B, 5))
    each = 2 * B * 25
    assert total == 2 * each + 2 * each + 3 * each  # forward, again forward, backward without the gradient of x


def test_accumulated_passes_count_and_a_profiler_of_the_program_goes_first() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with NeuralDbg(model, profile=True) as dbg:
        for step in range(10):
            for _ in range(2):
                model(torch.randn(B, 3)).sum().backward()
            if step == 3:
                with torch.autograd.profiler.profile() as theirs:
                    model(torch.randn(B, 3)).sum().backward()
            optimizer.step()
    assert any(one.name == "aten::addmm" for one in theirs.function_events)
    assert timing_of(dbg).flops == 2 * 2 * (2 * B * 3 * 2)


@pytest.mark.parametrize("profile", [True, None])
def test_operations_are_counted_only_if_that_is_asked_for(profile: bool | None) -> None:
    timing = train(nn.Linear(3, 2), lambda: torch.randn(B, 3), profile=profile)
    assert timing.flops == (4 * B * 3 * 2 if profile else None)
    assert (timing.machine_flops is not None) == (profile is True)
