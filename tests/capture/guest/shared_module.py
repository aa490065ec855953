"""A module of a program beside its script: what a forward uses from it is shared with the program."""

from __future__ import annotations

import types
from dataclasses import dataclass

import torch
from torch import Tensor

GENERATOR = torch.Generator()
CALLS: list[int] = []
WIDTH = 4
SETTINGS = types.SimpleNamespace(scale=2.0, shapes=(1, 2))


@dataclass
class Options:
    dropout: float = 0.1


OPTIONS = Options()


def noise(x: Tensor) -> Tensor:
    return x + torch.randn(x.shape, generator=GENERATOR)


def track(x: Tensor) -> Tensor:
    CALLS.append(1)
    return x


def scaled(x: Tensor, by: float = 0.5) -> Tensor:
    return x * by * WIDTH * SETTINGS.scale
