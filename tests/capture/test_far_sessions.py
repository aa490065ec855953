"""Whole sessions on a device that is not there (``far.py``): the same record as on the CPU, and nothing waits.

With Triton's kernels in the interpreter these run once more in a process of their own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.capture.far import KIND, Asking, Far, compare
from tests.capture.riding import Ride, ride
from torch import Tensor, nn

from neuraldbg import NeuralDbg
from neuraldbg.capture import Capture, governor
from neuraldbg.config import CaptureSettings
from neuraldbg.errors import TrainingHalted

if TYPE_CHECKING:
    from collections.abc import Callable

TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = KIND == "triton"
STEPS = 4 if INTERPRETED else 24


class Net(nn.Module):
    """A small convolutional net with batch norm, in-place activation and dropout-free head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.relu(self.norm(self.conv(x))).mean((2, 3)))


class Tokens(nn.Module):
    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(13, 6, sparse=sparse), nn.Linear(6, 13)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.embed(tokens))


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


def vectors() -> tuple[Tensor, Tensor]:
    x = torch.randn(16, 8)
    return x, (x.sum(1) > 0).long()


def simple(make: Callable[[], nn.Module], batch: Callable[[], tuple[Tensor, Tensor]], opt=torch.optim.Adam, micro=1):
    model = make()

    def program() -> None:
        optimizer = opt(model.parameters(), lr=1e-2)
        for _ in range(STEPS):
            optimizer.zero_grad()
            for _ in range(micro):
                x, y = batch()
                (F.cross_entropy(model(x).flatten(0, -2), y.flatten()) / micro).backward()
            optimizer.step()

    return program, [model]


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 1, 6, 6), torch.randint(3, (4,))


def tokens() -> tuple[Tensor, Tensor]:
    some = torch.randint(13, (4, 6))
    return some[:, :-1], some[:, 1:]


def closure():
    model = mlp()

    def program() -> None:
        x, y = vectors()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

        def evaluate() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        for _ in range(min(STEPS, 6)):
            optimizer.step(evaluate)

    return program, [model]


def two_optimizers():
    a, b = mlp(), nn.Linear(3, 3)

    def program() -> None:
        first = torch.optim.SGD(a.parameters(), lr=0.1)
        second = torch.optim.Adam(b.parameters(), lr=0.01)
        for _ in range(STEPS):
            x, y = vectors()
            first.zero_grad()
            second.zero_grad()
            F.cross_entropy(b(a(x)), y).backward()
            first.step()
            second.step()

    return program, [a, b]


def unscaled_inside():
    """As a fused optimizer with a GradScaler: it divides the gradients inside of its step."""
    model = mlp()

    class Fused(torch.optim.SGD):
        def step(self, closure=None):
            scale, self.grad_scale = self.grad_scale, None
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad.div_(scale)
            super().step(closure)
            scale.mul_(2)  # as a scaler's update() does, before the step is closed

    def program() -> None:
        optimizer = Fused(model.parameters(), lr=0.1)
        for step in range(STEPS):
            x, y = vectors()
            optimizer.zero_grad()
            optimizer.grad_scale = torch.tensor(256.0 * 2 ** (step % 3))
            (F.cross_entropy(model(x), y) * optimizer.grad_scale).backward()
            optimizer.step()

    return program, [model]


def scaler():
    model = mlp()

    def program() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaling = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
        for step in range(STEPS):
            x, y = vectors()
            optimizer.zero_grad()
            scaling.scale(F.cross_entropy(model(x), y) * (math.inf if step == 3 else 1.0)).backward()
            scaling.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaling.step(optimizer)
            scaling.update()

    return program, [model]


def bad_numbers():
    """A NaN of one step in a gradient, and an infinite weight."""
    model = mlp()

    def program() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            x, y = vectors()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if step == 2:
                model[2].weight.grad[3, 4] = math.nan
            optimizer.step()
            with torch.no_grad():
                for p in model.parameters():
                    p.nan_to_num_(0.0)
                if step == 3:
                    model[0].bias[2] = math.inf
                    model[0].bias[1] = -1e30

    return program, [model]


def replaced():
    """Weights that are replaced, frozen, turned around in memory and cleared, and gradients that come and go."""
    model = mlp()

    def program() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            x, y = vectors()
            optimizer.zero_grad()
            if step % 4 == 1:
                model[2].weight.data = model[2].weight.data.clone()
            if step % 4 == 2:
                model[2].weight.data = model[2].weight.data.t().contiguous().t()
            model[0].bias.requires_grad_(step % 3 != 1)
            F.cross_entropy(model(x), y).backward()
            if step % 5 == 3:
                model[4].bias.grad = torch.ones(1).expand(3)
            optimizer.step()

    return program, [model]


PROGRAMS = {
    "mlp": lambda: simple(mlp, vectors),
    "half": lambda: simple(lambda: mlp().bfloat16(), lambda: (vectors()[0].bfloat16(), torch.randint(3, (16,)))),
    "conv": lambda: simple(Net, images),
    "micro-batches": lambda: simple(mlp, vectors, micro=3),
    "tied and dense": lambda: simple(lambda: Tokens(sparse=False), tokens),
    "sparse": lambda: simple(lambda: Tokens(sparse=True), tokens, opt=torch.optim.SGD),
    "closure": closure,
    "two optimizers": two_optimizers,
    "unscaled inside": unscaled_inside,
    "scaler": scaler,
    "bad numbers": bad_numbers,
    "replaced": replaced,
}


def run(name: str, **settings: object) -> Ride:
    torch.manual_seed(0)
    program, models = PROGRAMS[name]()
    return ride(program, *models, **settings)


@pytest.mark.parametrize("delay", [0, 1, 5])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_record_is_that_of_the_cpu(name, delay, monkeypatch):
    near = run(name, probes=False)
    with monkeypatch.context() as patch:
        far = Far(patch, delay)
        away = run(name, probes=False)
    compare(away, near)
    assert far.waits <= delay, "only the end of the run may wait"


def test_one_copy_a_step_and_none_waits(monkeypatch):
    torch.manual_seed(0)
    model = mlp()
    far, asking = Far(monkeypatch, 1), Asking(monkeypatch)
    optimizer = torch.optim.Adam(model.parameters())

    def program() -> None:
        for step in range(24):
            x, y = vectors()
            before = far.sent
            # In the first steps, and where facts are read, leftovers are looked for and targets are copied.
            with asking if step > 16 else contextlib.nullcontext():
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            if step > 3:
                assert far.sent == before + 1
        assert far.waits == 0

    seen = ride(program, model, probes=False)
    assert len(seen.steps) == 24
    assert asking.found == []
