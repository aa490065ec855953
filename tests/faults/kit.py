"""Data, models and loops that the programs of this corpus are made of: small, real, plain torch."""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_diabetes, load_digits
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
Batches = Iterator[tuple[Tensor, Tensor]]


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    """Handwritten digits: images (1797, 1, 8, 8) from 0 to 1, labels (1797,)."""
    data = load_digits()
    return torch.tensor(data.images, dtype=torch.float32)[:, None] / 16, torch.tensor(data.target)


def flat_digits() -> tuple[Tensor, Tensor]:
    images, labels = digits()
    return images.flatten(1), labels


@functools.cache
def diabetes() -> tuple[Tensor, Tensor]:
    """A table of patients: standardised columns (442, 10), standardised targets (442, 1)."""
    data = load_diabetes()
    x, y = torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target, dtype=torch.float32)
    return (x - x.mean(0)) / x.std(0), ((y - y.mean()) / y.std())[:, None]


def raw_diabetes() -> tuple[Tensor, Tensor]:
    """The same with targets as they are measured: mean 152, standard deviation 77."""
    return diabetes()[0], torch.tensor(load_diabetes().target, dtype=torch.float32)[:, None]


@functools.cache
def text() -> Tensor:
    """Source text of the standard library as character codes below 128."""
    source = Path(string.__file__).read_text(encoding="utf-8")
    return torch.tensor([min(ord(c), 127) for c in source])


def batches(data: tuple[Tensor, Tensor], steps: int, size: int = 64) -> Batches:
    x, y = data
    for _ in range(steps):
        chosen = torch.randint(len(x), (size,))
        yield x[chosen], y[chosen]


def char_batches(steps: int, size: int = 16, length: int = 32) -> Batches:
    codes = text()
    for _ in range(steps):
        starts = torch.randint(len(codes) - length - 1, (size,))
        window = torch.stack([codes[s : s + length + 1] for s in starts])
        yield window[:, :-1], window[:, 1:]


def char_loss(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Batches,
    loss_fn: Loss = F.cross_entropy,
    after: Callable[[int], object] | None = None,
) -> None:
    """The loop that everybody writes."""
    for step, (x, y) in enumerate(data):
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after is not None:
            after(step)


def sgd(model: nn.Module, lr: float, **more: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr, **more)


def adam(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr)


class Mlp(nn.Module):
    """A named stack: fc1, act1, fc2, act2, ..., head."""

    def __init__(
        self, inputs: int = 64, outputs: int = 10, width: int = 64, depth: int = 3, act: type[nn.Module] = nn.ReLU
    ) -> None:
        super().__init__()
        self.depth = depth
        for i in range(1, depth):
            setattr(self, f"fc{i}", nn.Linear(inputs if i == 1 else width, width))
            setattr(self, f"act{i}", act())
        self.head = nn.Linear(width if depth > 1 else inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        for i in range(1, self.depth):
            x = getattr(self, f"act{i}")(getattr(self, f"fc{i}")(x))
        out: Tensor = self.head(x)
        return out


class ConvNet(nn.Module):
    """Two convolutions with batch norm and in-place ReLU, dropout, a linear classifier."""

    def __init__(self, p: float = 0.0, norm: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.bn1: nn.Module = nn.BatchNorm2d(12) if norm else nn.Identity()
        self.relu1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(12, 24, 3, padding=1)
        self.bn2: nn.Module = nn.BatchNorm2d(24) if norm else nn.Identity()
        self.relu2 = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(p)
        self.fc = nn.Linear(24 * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu1(self.bn1(self.conv1(x)))
        x = self.pool(self.relu2(self.bn2(self.conv2(x))))
        out: Tensor = self.fc(self.drop(x.flatten(1)))
        return out


class RowLstm(nn.Module):
    """Reads a digit row by row."""

    def __init__(self, cell: type[nn.RNNBase] = nn.LSTM, **settings: str) -> None:
        super().__init__()
        self.rnn = cell(8, 48, batch_first=True, **settings)
        self.head = nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.rnn(x.squeeze(1))[0][:, -1])
        return out


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, d))
        out: Tensor = x + self.down(F.gelu(self.up(self.ln2(x))))
        return out


class CharGpt(nn.Module):
    """A character-level transformer, pre-norm, causal."""

    def __init__(self, width: int = 32, layers: int = 2, tied: bool = False) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(128, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 128, bias=False)
        if tied:
            nn.init.normal_(self.tok.weight, std=0.02)
            self.head.weight = self.tok.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        out: Tensor = self.head(self.norm(h))
        return out


class AutoEncoder(nn.Module):
    def __init__(self, act: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.enc1, self.act1, self.enc2 = nn.Linear(64, 48), act(), nn.Linear(48, 12)
        self.dec1, self.act2, self.dec2 = nn.Linear(12, 48), act(), nn.Linear(48, 64)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dec2(self.act2(self.dec1(self.enc2(self.act1(self.enc1(x))))))
        return out


def pictures() -> tuple[Tensor, Tensor]:
    """Digits as their own targets."""
    x, _ = flat_digits()
    return x, x
