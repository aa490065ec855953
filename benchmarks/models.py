"""The models that the benchmarks train: from dispatch-bound to arithmetic-bound.

A step of the MLP takes about 2 ms on two cores and is nearly all Python and dispatch; a step of the GPT takes 100 to
500 ms and is nearly all matrix products. A tool that is cheap on one can be dear on the other. The narrow net has 200
layers with next to nothing to compute in each: the worst case for whatever calls something at every layer. Inputs are
synthetic: the time of a step does not depend on their values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Workload:
    """A model and the batches to train it on."""

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]]
    """Draws inputs and integer targets."""
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]


class Trainer:
    """One copy of a workload that can be trained step by step, eager or compiled."""

    def __init__(self, workload: Workload, seed: int = 0, *, compiled: bool = False) -> None:
        torch.manual_seed(seed)
        self.model = workload.model().train()  # as programs write: it gives each module a dictionary
        self.optimizer = workload.optimizer(self.model)
        self.compiled = compiled
        self.forward: Callable[[Tensor], Tensor] = torch.compile(self.model) if compiled else self.model
        self._draw = torch.Generator().manual_seed(seed)
        self._batch = workload.batch

    def compiled_apart(self) -> Callable[[Tensor], Tensor]:
        """Compile the model once more. By its backend Dynamo tells that these graphs are not those of ``forward``."""

        def inductor(graph: torch.fx.GraphModule, examples: list[Tensor]) -> Callable[..., object]:
            from torch._inductor.compile_fx import compile_fx  # noqa: PLC0415 (slow, and eager mode needs none of it)

            return compile_fx(graph, examples)  # type: ignore[return-value]  # what else it may be needs options

        return torch.compile(self.model, backend=inductor)

    def step(self) -> Tensor:
        """Train one step and return its loss. The batch is drawn anew each time, as a loader would."""
        inputs, targets = self._batch(self._draw)
        logits = self.forward(inputs)
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def convnet() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 64)):
        layers += [
            nn.Conv2d(before, after, 3, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 10))


class Attention(nn.Module):
    """Causal self-attention over (batch, time, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.proj(y.transpose(1, 2).reshape(batch, time, width))
        return out


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class GPT(nn.Module):
    """Tokens of shape (batch, time) in, logits of shape (batch, time, vocabulary) out; about 11 million parameters."""

    def __init__(self, vocabulary: int = 256, block: int = 128, width: int = 384, layers: int = 6) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(block, width)
        self.blocks = nn.Sequential(*(Block(width, heads=width // 64) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


class LSTM(nn.Module):
    """Tokens of shape (batch, time) in, logits of shape (batch, time, vocabulary) out."""

    def __init__(self, vocabulary: int = 256, width: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.rnn(self.token(tokens))
        logits: Tensor = self.head(hidden)
        return logits


def narrow() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(200):
        layers += [nn.Linear(32, 32), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(32, 10))


def vectors(draw: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(128, 64, generator=draw), torch.randint(10, (128,), generator=draw)


def images(draw: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(32, 3, 32, 32, generator=draw), torch.randint(10, (32,), generator=draw)


def tokens(draw: torch.Generator) -> tuple[Tensor, Tensor]:
    drawn = torch.randint(256, (4, 129), generator=draw)
    return drawn[:, :-1], drawn[:, 1:]


def long_tokens(draw: torch.Generator) -> tuple[Tensor, Tensor]:
    drawn = torch.randint(256, (32, 65), generator=draw)
    return drawn[:, :-1], drawn[:, 1:]


def short_vectors(draw: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(32, 32, generator=draw), torch.randint(10, (32,), generator=draw)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-4)


_ALL = (
    Workload("MLP", mlp, vectors, sgd),
    Workload("Narrow", narrow, short_vectors, sgd),
    Workload("ConvNet", convnet, images, sgd),
    Workload("LSTM", LSTM, long_tokens, adamw),
    Workload("GPT", GPT, tokens, adamw),
)
WORKLOADS = {workload.name: workload for workload in _ALL}
"""By name, smallest step first."""
