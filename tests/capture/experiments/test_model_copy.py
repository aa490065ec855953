"""The twin of a model shares nothing with it, and a model that cannot be copied safely is refused with a reason."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from neuraldbg.capture.experiments.experiment import undisturbed
from neuraldbg.capture.experiments.model_copy import ELEMENTS, Unfit, twin

LOG: list[float] = []
CALLS = 0
NOISE = np.random.default_rng(0)


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


def test_the_twin_gives_the_same_and_shares_no_tensor():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.LSTM(8, 8)).train()
    copy = twin(model)
    own = {x.data_ptr() for x in (*model.parameters(), *model.buffers())}
    assert not own & {x.data_ptr() for x in (*copy.parameters(), *copy.buffers())}
    assert model.training
    assert not copy.training
    x = torch.randn(5, 4)
    model.eval()
    assert torch.equal(model(x)[0], copy(x)[0])


def test_computed_weights_are_computed_in_the_twin():
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    )
    model.eval()
    x = torch.randn(5, 4)
    assert torch.allclose(model(x), twin(model)(x))


def test_a_copy_leaves_no_weight_where_its_model_looks_for_one():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)))
    with nn.utils.parametrize.cached():
        with undisturbed():
            twin(model)(torch.ones(2, 3))
            assert nn.utils.parametrize._cache_enabled == 0
        assert nn.utils.parametrize._cache == {}
        kept = model[0].weight
        with undisturbed():
            assert twin(model)[0].weight is not kept
        assert model[0].weight is kept


def test_lists_and_counts_of_a_model_stay_its_own():
    class Counting(Base):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.seen = 0, []

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.seen.append(float(x.sum()))
            return super().forward(x)

    model = Counting()
    copy = twin(model)
    copy(torch.ones(2, 4))
    assert (model.calls, model.seen) == (0, [])
    assert copy.calls == 1


class Logs(Base):
    def forward(self, x: Tensor) -> Tensor:
        LOG.append(float(x.sum()))
        return super().forward(x)


class Prints(Base):
    def forward(self, x: Tensor) -> Tensor:
        print(x.shape)  # noqa: T201 (what is tried)
        return super().forward(x)


class Counts(Base):
    def forward(self, x: Tensor) -> Tensor:
        global CALLS  # noqa: PLW0603 (what is tried)
        CALLS += 1
        return super().forward(x)


class Draws(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + float(NOISE.normal()))


def noisy(x: Tensor) -> Tensor:
    return x + float(NOISE.normal())


class DrawsInAHelper(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(noisy(x))


class HoldsALock(Base):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class HoldsAGraph(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.last = super().forward(x)
        return self.last


def hooked() -> nn.Module:
    model = Base()
    model.fc.register_forward_hook(lambda _m, _a, out: out * 2)
    return model


def kept() -> nn.Module:
    model = HoldsAGraph()
    model(torch.ones(2, 4))
    return model


def compiled() -> nn.Module:
    return torch.jit.script(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Logs, "shared with the program"),
        (Prints, "reaches outside"),
        (Counts, "writes to a variable outside"),
        (Draws, "shared with the program"),
        (DrawsInAHelper, "shared with the program"),
        (HoldsALock, "it holds a lock|copies itself"),
        (kept, "a tensor with a graph"),
        (hooked, "hooks on it"),
        (compiled, "compiled"),
    ],
)
def test_what_reaches_outside_is_refused(make: Any, reason: str):
    with pytest.raises(Unfit, match=reason):
        twin(make())


def test_a_large_model_is_refused_before_it_is_copied():
    with torch.device("meta"):
        model = nn.Linear(10_000, ELEMENTS // 10_000 + 1)
    with pytest.raises(Unfit):
        twin(model)
    small = nn.Linear(4, 4)
    small.register_buffer("table", torch.zeros(1).expand(ELEMENTS + 1))
    with pytest.raises(Unfit, match="more than are copied"):
        twin(small)
