"""Numbers outgrow their format."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import batches, flat_digits, sgd
from torch import Tensor, nn


@program("mlp", "fp16_overflow", layer="b", verdict="failing")
def half_layer_with_growing_scale() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(64, 64), nn.Linear(64, 64).half(), nn.Linear(64, 10)
            self.scale = 10.0

        def forward(self, x: Tensor) -> Tensor:
            self.scale *= 1.25
            h = self.b((F.relu(self.a(x)) * self.scale).half()).float() / self.scale
            out: Tensor = self.c(F.relu(h))
            return out

    model = Net()
    optimizer = sgd(model, 0.01)
    for x, y in batches(flat_digits(), 80):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program("mlp", "fp16_overflow", layer="score", verdict="failing")
def half_scores_without_scaling() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.key, self.score, self.head = nn.Linear(64, 64), nn.Identity(), nn.Linear(64, 10)
            self.gain = nn.Parameter(torch.tensor(40.0))

        def forward(self, x: Tensor) -> Tensor:
            k = self.key(x)
            raw = (k * self.gain * 60).half()
            s = self.score(raw * raw)  # a product of two large halves, as in attention without 1/sqrt(d)
            out: Tensor = self.head(torch.softmax(s.float(), 1) * k)
            return out

    model = Net()
    optimizer = sgd(model, 0.05)
    for x, y in batches(flat_digits(), 60):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
