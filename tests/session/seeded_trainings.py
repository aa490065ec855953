"""Real little trainings: each sets its own seed, trains, and returns what a bitwise comparison looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 8
torch.set_num_threads(1)  # these models are tiny: threads would only wait for each other


class Mlp(nn.Module):
    """Dropout, batch norm and an in-place activation between named linear layers."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.3)
        self.fc2 = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.drop(F.relu(self.norm(self.fc1(x)), inplace=True)))


class ConvNet(nn.Module):
    """BatchNorm and in-place ReLU, with an in-place residual addition."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(x))
        y += x
        return self.head(self.relu(y).mean((2, 3)))


class Former(nn.Module):
    """A small transformer classifier over tokens, weights of input and output tied."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, 11, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.blocks(self.embed(tokens)))


class Lstm(nn.Module):
    """Two recurrent layers with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 12, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.rnn(x)
        return self.head(hidden[:, -1])


def vectors(n: int = 32) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 8)
    return x, (x.sum(1) > 0).long() + (x[:, 0] > 1).long()


def _result(model: nn.Module, losses: list[Tensor]) -> dict[str, Any]:
    return {
        "losses": torch.stack(losses),
        "state": {name: value.detach().clone() for name, value in model.state_dict().items()},
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "rng": torch.random.get_rng_state(),
    }


def _train(watch: Any, make: Callable[[], nn.Module], batch: Callable[[], Any], loss_of: Any = None) -> dict[str, Any]:
    torch.manual_seed(0)
    model = make()
    loss_of = loss_of or F.cross_entropy
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with watch(model):
        for _ in range(STEPS):
            x, y = batch()
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
    return _result(model, losses)


def mlp(watch: Any) -> dict[str, Any]:
    return _train(watch, Mlp, vectors)


def convnet(watch: Any) -> dict[str, Any]:
    return _train(watch, ConvNet, lambda: (torch.randn(8, 1, 8, 8), torch.randint(3, (8,))))


def transformer(watch: Any) -> dict[str, Any]:
    def batch() -> tuple[Tensor, Tensor]:
        tokens = torch.randint(11, (4, 9))
        return tokens[:, :-1], tokens[:, 1:]

    return _train(watch, Former, batch, lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()))


def lstm(watch: Any) -> dict[str, Any]:
    return _train(watch, Lstm, lambda: (torch.randn(8, 5, 8), torch.randint(3, (8,))))


def lbfgs(watch: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    x = torch.randn(32, 8)
    y = x.sum(1, keepdim=True).sin()
    losses = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    with watch(model):
        losses += [optimizer.step(closure).detach().clone() for _ in range(STEPS)]
    return _result(model, losses)


def bf16_autocast(watch: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    with watch(model):
        for _ in range(STEPS):
            x, y = vectors()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
    return _result(model, losses)


def evaluation_between(watch: Any) -> dict[str, Any]:
    """Evaluation with and without ``no_grad`` after every second step, and weights saved and loaded on the way."""
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    with watch(model):
        for step in range(STEPS):
            x, y = vectors()
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
            if step % 2:
                model.eval()
                with torch.no_grad():
                    losses.append(F.cross_entropy(model(x), y))
                losses.append(F.cross_entropy(model(x), y).detach())
                model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})
                model.train()
    return _result(model, losses)


def accumulation(watch: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with watch(model):
        for _ in range(STEPS):
            for _ in range(3):
                x, y = vectors()
                loss = F.cross_entropy(model(x), y) / 3
                loss.backward()
                losses.append(loss.detach().clone())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    return _result(model, losses)


def grad_scaler(watch: Any) -> dict[str, Any]:
    """With one batch that overflows, so that the scaler skips a step."""
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3)
    losses = []
    with watch(model):
        for step in range(STEPS):
            x, y = vectors()
            loss = F.cross_entropy(model(x), y) * (float("inf") if step == 4 else 1.0)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach().clone())
    return {**_result(model, losses), "scale": torch.tensor(scaler.get_scale())}


TRAININGS = {
    program.__name__: program
    for program in (
        mlp,
        convnet,
        transformer,
        lstm,
        lbfgs,
        bf16_autocast,
        evaluation_between,
        accumulation,
        grad_scaler,
    )
}


def same(one: Any, other: Any, where: str = "") -> None:
    """Require equality to the last bit; a NaN equals a NaN."""
    if isinstance(one, Tensor):
        assert one.dtype == other.dtype, where
        assert torch.equal(one.nan_to_num(nan=77.0), other.nan_to_num(nan=77.0)), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            same(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for index, pair in enumerate(zip(one, other, strict=True)):
            same(*pair, f"{where}/{index}")
    else:
        assert one == other, where
