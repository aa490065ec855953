"""Trainings that are sound and go on as long as asked: a seed enters, a training with its loop leaves.

What the loop uses stands in attributes and methods of a ``Training``, so that a change in mid-run (``late_kinds``) can
replace any one of them. Three of the tasks are held out: nothing is ever tuned on them.
"""

from __future__ import annotations

import functools
import math
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

Change = Callable[["Training"], None]
SOURCES = (
    "argparse", "ast", "base64", "bdb", "calendar", "cmd", "codecs", "configparser", "copy", "csv", "datetime",
    "difflib", "dis", "doctest", "enum", "filecmp", "fractions", "functools", "heapq", "inspect", "locale", "mailbox",
    "optparse", "pathlib", "pdb", "pickle", "pprint", "random", "shutil", "socket", "statistics", "string", "tarfile",
)  # fmt: skip
"""Modules of the standard library that the language model reads."""


class Model(nn.Module):
    """Features and a head."""

    head: nn.Module

    def features(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.features(x))
        return out


class Training:
    """A model, its data and its loop."""

    name = ""
    held_out = False
    target = "classes"
    """What is predicted: ``classes``, ``values``, ``pictures`` (the input itself) or ``tokens``."""
    classes = 0
    size = 32
    """Samples of a batch."""
    longest = 20_000
    """Largest onset: so that a bare run takes some seconds."""
    mean: Tensor = torch.tensor(0.0)
    std: Tensor = torch.tensor(1.0)
    """How the inputs were normalised."""
    max_norm: float | None = None
    """Limit of the gradient's norm."""

    model: Model
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler | None
    x: Tensor
    y: Tensor
    held: tuple[Tensor, Tensor]

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.scheduler = None
        self.step, self.steps, self.at = 0, 0, 0
        self.build()
        self.feed = self.batches()

    def build(self) -> None:
        """Set data, model and optimizer."""
        raise NotImplementedError

    # ------------------------------------------------------------ data

    def order(self) -> Tensor:
        return torch.randperm(len(self.x))

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            for rows in self.order().split(self.size):
                if len(rows) == self.size:
                    yield self.x[rows], self.y[rows]

    def augment(self, x: Tensor) -> Tensor:
        return x

    def prepare(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the model gets and what it should answer."""
        return self.augment(x), y

    # ------------------------------------------------------------ one step

    def criterion(self, out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, y)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.model(x)
        return out

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.criterion(self.forward(x), y)

    def clear(self) -> None:
        self.optimizer.zero_grad()

    def clip(self) -> None:
        if self.max_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)

    def update(self) -> None:
        self.optimizer.step()

    def after(self) -> None:
        """Do what comes at the end of a step."""

    def train(self, steps: int, at: int = -1, change: Change | None = None) -> float:
        """Train for some steps, with a change before step ``at``; return the last loss."""
        self.model.train()
        self.steps, self.at = steps, at
        for self.step in range(self.step, steps):
            if self.step == at and change is not None:
                change(self)
            x, y = self.prepare(*next(self.feed))
            self.clear()
            loss = self.loss(x, y)
            loss.backward()
            self.clip()
            self.update()
            if self.scheduler is not None:
                self.scheduler.step()
            self.after()
        self.step = steps
        return loss.item()

    # ------------------------------------------------------------ measuring, outside of the training

    def clean(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss that this task is really about."""
        return F.cross_entropy(self.model(x), y)

    @torch.no_grad()
    def quality(self) -> float:
        """Return the loss on fixed clean data that were not trained on; no random number is drawn."""
        was = self.model.training
        self.model.eval()
        found = self.clean(*self.held).item()
        self.model.train(was)
        return found if math.isfinite(found) else math.inf


# ---------------------------------------------------------------- a table, and classes


@functools.cache
def shop_table() -> tuple[Tensor, Tensor]:
    """Return a made-up table (40000, 20) in raw units and one of six classes for each row, with noise."""
    g = torch.Generator().manual_seed(11)
    z = torch.randn(40_000, 20, generator=g)
    z[:, 10:15] = z[:, 10:15].abs().sqrt()
    w1, w2 = torch.randn(20, 24, generator=g) / 3, torch.randn(24, 6, generator=g)
    logits = 1.5 * torch.tanh(z @ w1) @ w2 / math.sqrt(6)
    noise = -torch.log(-torch.log(torch.rand(logits.shape, generator=g).clamp(1e-9, 1 - 1e-7)))
    scale = 10 ** torch.empty(20).uniform_(-1, 1.5, generator=g)
    return (z + 4 * torch.rand(20, generator=g)) * scale, (1.7 * logits + noise).argmax(1)


class TableMlp(Model):
    def __init__(self, inputs: int, outputs: int, width: int, p: float) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(inputs, width), nn.Linear(width, width)
        self.drop = nn.Dropout(p)
        self.head = nn.Linear(width, outputs)

    def features(self, x: Tensor) -> Tensor:
        x = self.drop(F.relu(self.fc1(x)))
        out: Tensor = self.drop(F.relu(self.fc2(x)))
        return out


class Customers(Training):
    """A classifier of customers from a table: SGD with momentum."""

    name, target, classes, size, longest = "customers", "classes", 6, 64, 6_000

    def build(self) -> None:
        x, y = shop_table()
        self.mean, self.std = x.mean(0), x.std(0)
        x = (x - self.mean) / self.std
        self.x, self.y, self.held = x[:-1000], y[:-1000], (x[-1000:], y[-1000:])
        self.model = TableMlp(20, 6, 64, 0.1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)


# ---------------------------------------------------------------- a table, and a price


@functools.cache
def price_table() -> tuple[Tensor, Tensor]:
    """Return made-up features of houses (20000, 12) in raw units and their prices (20000, 1)."""
    g = torch.Generator().manual_seed(12)
    z = torch.randn(20_000, 12, generator=g)
    hidden = torch.sin(z @ torch.randn(12, 16, generator=g) / 2)
    value = hidden @ torch.randn(16, 1, generator=g) + z[:, :1] * z[:, 1:2] + 0.3 * torch.randn(20_000, 1, generator=g)
    scale = 10 ** torch.empty(12).uniform_(-1, 2, generator=g)
    return (z + 3) * scale, 250_000 + 40_000 * value


class Prices(Training):
    """A regression on a table: Adam, mean squared error of standardised prices."""

    name, target, size, longest = "prices", "values", 64, 5_500

    def build(self) -> None:
        x, y = price_table()
        self.mean, self.std = x.mean(0), x.std(0)
        x, y = (x - self.mean) / self.std, (y - y.mean()) / y.std()
        self.x, self.y, self.held = x[:-1000], y[:-1000], (x[-1000:], y[-1000:])
        self.model = TableMlp(12, 1, 64, 0.05)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def criterion(self, out: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(out, y)

    def clean(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self.model(x), y)


# ---------------------------------------------------------------- pictures


@functools.cache
def split_digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return pictures (n, 1, 8, 8) from 0 to 1 and labels for training, then 297 for validation."""
    data = load_digits()
    images, labels = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16, torch.tensor(data.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(13))
    images, labels = images[order], labels[order]
    return images[:1500], labels[:1500], images[1500:], labels[1500:]


def shifted(x: Tensor) -> Tensor:
    """Shift a batch of pictures by up to one pixel, all of them alike."""
    dx, dy = torch.randint(0, 3, (2,)).tolist()
    return F.pad(x, (1, 1, 1, 1))[..., dy : dy + 8, dx : dx + 8]


class SmallConvNet(Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(16 * 4, 10)

    def features(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        out: Tensor = self.drop(x.flatten(1))
        return out


class Convnet(Training):
    """A small ConvNet with batch norm on digits: SGD with momentum, a long cosine, shifts and noise."""

    name, target, classes, size, longest = "convnet", "classes", 10, 32, 2_200

    def build(self) -> None:
        self.mean, self.std = torch.tensor(0.31), torch.tensor(0.38)
        x, y, held_x, held_y = split_digits()
        x, held_x = (x - self.mean) / self.std, (held_x - self.mean) / self.std
        self.x, self.y, self.held = x, y, (held_x, held_y)
        self.model = SmallConvNet()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 6_000)

    def augment(self, x: Tensor) -> Tensor:
        x = shifted(x + self.mean / self.std) - self.mean / self.std
        return x + 0.6 * torch.randn_like(x)


class DigitAutoEncoder(Model):
    def __init__(self) -> None:
        super().__init__()
        self.enc1, self.enc2 = nn.Linear(64, 48), nn.Linear(48, 10)
        self.dec1, self.head = nn.Linear(10, 48), nn.Linear(48, 64)

    def features(self, x: Tensor) -> Tensor:
        return F.relu(self.dec1(self.enc2(F.relu(self.enc1(x)))))


class Denoiser(Training):
    """An autoencoder that takes noise from digits: Adam, mean squared error."""

    name, target, size, longest = "denoiser", "pictures", 64, 4_500

    def build(self) -> None:
        x, _, held, _ = split_digits()
        self.x = self.y = x.flatten(1)
        self.held = held.flatten(1), held.flatten(1)
        self.mean, self.std = torch.tensor(0.31), torch.tensor(0.38)
        self.model = DigitAutoEncoder()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def augment(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn_like(x)

    def criterion(self, out: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(out, y)

    def clean(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self.model(x), y)


# ---------------------------------------------------------------- held out


@functools.cache
def source_text() -> Tensor:
    """Return source text of the standard library as character codes below 128."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = [folder / f"{name}.py" for name in SOURCES]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())
    return torch.tensor([min(byte, 127) for byte in text.encode()])


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int, p: float) -> None:
        super().__init__()
        self.heads, self.causal = heads, True
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.drop(self.proj(mixed.transpose(1, 2).reshape(b, t, d)))
        out: Tensor = x + self.drop(self.down(F.gelu(self.up(self.ln2(x)))))
        return out


class SourceGpt(Model):
    def __init__(self, width: int = 32, layers: int = 2, length: int = 24) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(128, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GptBlock(width, 4, 0.05) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 128, bias=False)

    def features(self, x: Tensor) -> Tensor:
        h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        out: Tensor = self.norm(h)
        return out


class Gpt(Training):
    """A character GPT on Python's own source text: AdamW, warmup."""

    name, held_out, target, classes, size, longest = "gpt", True, "tokens", 128, 8, 1_400
    length = 24
    max_norm = 1.0

    def build(self) -> None:
        codes = source_text()
        windows = codes.unfold(0, self.length + 1, 7)
        self.x, self.y = windows[:-4000, :-1], windows[:-4000, 1:]
        self.held = windows[-2000::10, :-1], windows[-2000::10, 1:]
        self.model = SourceGpt()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3, weight_decay=0.05)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 100))

    def criterion(self, out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1), y.flatten())

    def clean(self, x: Tensor, y: Tensor) -> Tensor:
        was = [block.causal for block in self.model.blocks]  # type: ignore[union-attr]
        for block in self.model.blocks:  # type: ignore[union-attr]
            block.causal = True
        found = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        for block, causal in zip(self.model.blocks, was, strict=True):  # type: ignore[arg-type]
            block.causal = causal
        return found


class RowReader(Model):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 32, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(32, 10)

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = self.drop(self.rnn(x)[0][:, -1])
        return out


class Rows(Training):
    """An LSTM that reads digits row by row: Adam, gradient clipping."""

    name, held_out, target, classes, size, longest = "rows", True, "classes", 10, 32, 2_200
    max_norm = 1.0

    def build(self) -> None:
        self.mean, self.std = torch.tensor(0.31), torch.tensor(0.38)
        x, y, held_x, held_y = split_digits()
        x, held_x = (x - self.mean) / self.std, (held_x - self.mean) / self.std
        self.x, self.y, self.held = x.squeeze(1), y, (held_x.squeeze(1), held_y)
        self.model = RowReader()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def augment(self, x: Tensor) -> Tensor:
        return x + 0.6 * torch.randn_like(x)


class DigitVae(Model):
    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Linear(64, 64)
        self.mu, self.logvar = nn.Linear(64, 8), nn.Linear(64, 8)
        self.dec, self.head = nn.Linear(8, 64), nn.Linear(64, 64)
        self.kl = torch.zeros(())

    def features(self, x: Tensor) -> Tensor:
        h = F.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        self.kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        return F.relu(self.dec(z))


class Vae(Training):
    """A variational autoencoder on digits: Adam, binary cross-entropy and KL."""

    name, held_out, target, size, longest = "vae", True, "pictures", 32, 2_400

    def build(self) -> None:
        x, _, held, _ = split_digits()
        self.x = self.y = x.flatten(1)
        self.held = held.flatten(1), held.flatten(1)
        self.mean, self.std = torch.tensor(0.31), torch.tensor(0.38)
        self.model = DigitVae()
        self.beta = 1.0
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def criterion(self, out: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(out, y, reduction="sum") / len(y)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        reconstruction = self.criterion(self.forward(x), y)
        return reconstruction + self.beta * self.model.kl  # type: ignore[operator]

    def clean(self, x: Tensor, y: Tensor) -> Tensor:
        found = F.binary_cross_entropy_with_logits(self.model(x), y, reduction="sum") / len(y)
        return found + self.model.kl  # type: ignore[operator]


TASKS: dict[str, type[Training]] = {one.name: one for one in (Customers, Prices, Convnet, Denoiser, Gpt, Rows, Vae)}
