"""Who watches makes no list of function transforms: autograd would copy it for each node of each backward pass."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.statistics import operation

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 300
"""Full steps, the beginning of light ones, and with ``overhead=None`` steps without facts."""


@pytest.fixture
def listed() -> Callable[[], bool]:
    """Tells whether this thread has a list of transforms: torch makes it for whoever asks for their level."""
    library = ctypes.CDLL(str(next(Path(torch.__file__).with_name("lib").glob("*torch_cpu.*"))))
    try:
        find = library._ZN2at9functorch20functorchTLSAccessorEv
    except AttributeError:
        pytest.skip("this torch names it otherwise")
    find.restype = ctypes.POINTER(ctypes.c_void_p)
    return lambda: bool(find()[0])


def _train(**options: object) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(32, 8), torch.randint(3, (32,))
    with NeuralDbg(model, optimizer, **options) as dbg:  # type: ignore[arg-type]
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        dbg.diagnose()


@pytest.mark.budget
@pytest.mark.parametrize("options", [{"settings": {"capture": {"allowance_s": 0.05}}}, {"overhead": None}])
def test_a_watched_training_makes_no_list_of_transforms(options: dict[str, object], listed: Callable[[], bool]) -> None:
    found: list[bool] = []

    def alone() -> None:  # each thread has a list of its own
        found.append(listed())
        _train(**options)
        found.append(listed())
        torch._C._functorch.maybe_current_level()  # what must not be asked
        found.append(listed())

    thread = threading.Thread(target=alone)
    thread.start()
    thread.join()
    assert found == [False, False, True]


def test_a_transform_is_noticed_where_it_is_active() -> None:
    told: list[bool] = []

    def loss(x: torch.Tensor) -> torch.Tensor:
        told.append(operation.transforming())
        return (x**2).sum()

    torch.func.vmap(torch.func.grad(loss))(torch.ones(2, 3))
    torch.func.jvp(loss, (torch.ones(2),), (torch.ones(2),))
    torch.func.functionalize(loss)(torch.ones(2))
    assert told == [True, True, True]
    assert not operation.transforming()
