"""Code that is run a second time must not be noticed: what may be named is listed, and all else is refused."""

from __future__ import annotations

import functools
import itertools
import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.capture.guest import shared_module
from torch import Tensor, nn
from torch.nn import functional as F

from neuraldbg.capture.experiments.model_copy import twin
from neuraldbg.capture.guest.purity import Unfit, check

BUFFER = torch.zeros(4)
LOG = logging.getLogger("of the program")
COUNTER = itertools.count()
ROUNDS = 0


class Noise:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, x: Tensor) -> Tensor:
        return x * float(self.rng.uniform(0.9, 1.1))


NOISE = Noise()


class Counted(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        Counted.calls += 1
        return x * Counted.calls

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scale = math.pi
        return x * ctx.scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.scale


class Base(nn.Module):
    calls = 0
    history: list[int] = []  # noqa: RUF012 (shared by the class: that is the point)

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


class Below(Base):
    def forward(self, x: Tensor) -> Tensor:
        global ROUNDS  # noqa: PLW0603
        ROUNDS += 1
        return self.fc(x) * ROUNDS


class OfModule(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(shared_module.noise(x))


class TrackedInModule(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(shared_module.track(x))


class OfObject(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(NOISE(x))


class OnClass(Base):
    def forward(self, x: Tensor) -> Tensor:
        OnClass.calls += 1
        return self.fc(x)


class OnOwnClass(Base):
    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        return self.fc(x)


class InClassList(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.history.append(1)
        return self.fc(x)


class InDefault(Base):
    def forward(self, x: Tensor, cache: dict[str, int] = {}) -> Tensor:  # noqa: B006
        cache["n"] = cache.get("n", 0) + 1
        return self.fc(x) * cache["n"]


class Logging(Base):
    def forward(self, x: Tensor) -> Tensor:
        LOG.info("a call")
        return self.fc(x)


class Counting(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * next(COUNTER)


class InPlace(Base):
    def forward(self, x: Tensor) -> Tensor:
        BUFFER.mul_(0.9)
        return self.fc(x - BUFFER)


class Inherited(Below):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class OfFunction(Base):
    def forward(self, x: Tensor) -> Tensor:
        return Counted.apply(self.fc(x))


class CopiesItself(Base):
    def __deepcopy__(self, memo: Any) -> CopiesItself:
        return self


class Imports(Base):
    def forward(self, x: Tensor) -> Tensor:
        import os

        os.environ["SEEN"] = "1"
        return self.fc(x)


def with_callable(call: Any) -> Base:
    class Holding(Base):
        def __init__(self) -> None:
            super().__init__()
            self.call = call

        def forward(self, x: Tensor) -> Tensor:
            self.call(1)
            return self.fc(x)

    return Holding()


SEEN: list[int] = []


@pytest.mark.parametrize(
    "model",
    [
        OfModule, TrackedInModule, OfObject, OnClass, OnOwnClass, InClassList, InDefault, Logging, Counting, InPlace,
        Inherited, OfFunction, CopiesItself, Imports,
        lambda: with_callable(SEEN.append), lambda: with_callable(lambda x: SEEN.append(x)),  # noqa: PLW0108
        lambda: with_callable(functools.partial(SEEN.insert, 0)),
    ],
)  # fmt: skip
def test_what_the_program_would_notice_is_refused(model: Any):
    with pytest.raises(Unfit):
        twin(model())


class Usual(Base):
    """What forwards of all kinds do."""

    widths = (4, 8)

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.act = F.gelu
        self.pool = functools.partial(torch.mean, dim=0)
        self.calls = 0
        self.kinds = {"a": nn.Identity, "b": nn.ReLU}
        self.options = shared_module.Options()

    @property
    def scale(self) -> float:
        return 1.0 / math.sqrt(self.widths[0])

    def block(self, x: Tensor) -> Tensor:
        def inner(y: Tensor) -> Tensor:
            return y * self.scale

        return inner(x) + shared_module.scaled(x) * shared_module.OPTIONS.dropout

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        self.calls += 1
        x = self.act(self.norm(super().forward(x)))
        x = Plain.apply(self.block(x)) + np.pi * len(shared_module.SETTINGS.shapes)
        parts = [x for _ in range(2)]
        return torch.stack(parts).sum(0) if mask is None else self.pool(x)


def test_what_forwards_usually_do_is_accepted():
    model = Usual().eval()
    x = torch.randn(3, 4)
    assert torch.equal(model(x), twin(model)(x))
    check(Plain.forward, Plain.backward)
    with pytest.raises(Unfit, match="write to a class"):
        check(Counted.forward)
