"""Weights that code of the program changes between two steps: seen in every step, also in those by native code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.guest.native import native
from neuraldbg.capture.guest.weak_references import TensorRef
from neuraldbg.capture.parameters.outside_changes import KEPT, LEAST, MOST, KeptElements
from neuraldbg.capture.statistics.watched_parameter import Watched
from neuraldbg.nouns.facts.change import ChangeFact

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.nouns import RunRecord

pytestmark = pytest.mark.skipif(native is None, reason="the weights of light steps are read by native code")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def watched(*tensors: torch.Tensor) -> list[Watched]:
    """Return parameters as the capture holds them."""
    return [Watched(f"w{i}", "", "", TensorRef(x), None, None, None, matrix=x.dim() > 1) for i, x in enumerate(tensors)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_the_change_is_the_distance_of_the_elements_over_their_size(dtype: torch.dtype, size: int) -> None:
    torch.manual_seed(size)
    x = torch.randn(1, size).to(dtype)
    kept = KeptElements(watched(x), 1.0)
    assert kept.changed() is None, "nothing is kept yet"
    kept.keep()
    assert kept.changed() is None
    places = [k * (size - 1) // (KEPT - 1) for k in range(KEPT)]
    before = x.double().numpy()[0, places]
    x.add_(torch.randn(1, size).to(dtype))
    found = kept.changed()
    change = np.linalg.norm(x.double().numpy()[0, places] - before) / np.linalg.norm(before)
    assert found is not None
    assert found.change == pytest.approx(change, rel=1e-12)
    assert found.names == ("w0",)
    kept.forget()
    assert kept.changed() is None


def test_new_memory_is_followed_and_another_shape_or_kind_is_left_out() -> None:
    x, y, z = (nn.Parameter(torch.ones(4, 4)) for _ in range(3))
    kept = KeptElements(watched(x, y, z), 1.0)
    kept.keep()
    x.data = torch.zeros(4, 4)
    y.data = torch.zeros(5, 5)
    z.data = torch.zeros(4, 4, dtype=torch.float64)
    found = kept.changed()
    assert found is not None
    assert (found.change, found.names) == (1.0, ("w0",))
    kept.keep()
    assert kept.changed() is None


def test_a_weight_that_dies_or_has_no_memory_is_left_out() -> None:
    x, y = torch.ones(4, 4), torch.ones(4, 4)
    kept = KeptElements(watched(x, y), 1.0)
    kept.keep()
    del x
    y.untyped_storage().resize_(0)
    assert kept.changed() is None
    kept.keep()
    assert kept.changed() is None


def test_of_many_weights_some_are_compared_spread_over_all() -> None:
    tensors = [torch.ones(2, 2) for _ in range(500)]
    for seconds, count in ((0.0, LEAST), (1.0, MOST)):
        kept = KeptElements(watched(*tensors), seconds)
        kept.keep()
        for x in tensors:
            x.mul_(3.0)
        found = kept.changed()
        assert found is not None
        assert len(found.names) == count
        assert {"w0", "w499"} <= set(found.names), "also those beyond the bits of one number"
        assert found.change == 2.0


def test_nan_and_zeros_are_no_change_of_known_size() -> None:
    x, y = torch.zeros(3, 3), torch.ones(3, 3)
    kept = KeptElements(watched(x, y), 1.0)
    kept.keep()
    x.fill_(1.0)
    y.fill_(float("nan"))
    assert kept.changed() is None
    kept.keep()
    y.fill_(1.0)
    assert kept.changed() is None


# ---------------------------------------------------------------- in a session

STEPS, AT = 700, 523


def trained(act: Callable[[nn.Module], object], at: int = AT, optimizers: int = 1, **settings: object) -> RunRecord:
    """Train, and let the program act on the model before a step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    parts = [list(model[0].parameters()), list(model[2].parameters())]
    groups = parts if optimizers == 2 else [parts[0] + parts[1]]
    every = [torch.optim.SGD(group, lr=1e-3) for group in groups]
    x = torch.randn(16, 6)
    dbg = NeuralDbg(model, settings={"capture": settings}, probes=False)
    with dbg:
        for step in range(STEPS):
            if step == at:
                act(model)
            loss = (model(x) - x[:, :1]).square().mean()
            for optimizer in every:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in every:
                optimizer.step()
    return dbg.record()


def changes(run: RunRecord) -> list[tuple[int, int, tuple[str, ...]]]:
    return [(one.since, one.until, one.names) for _, one in run.versions(ChangeFact, what="weights")]


@torch.no_grad()
def rewrite(model: nn.Module) -> None:
    model[0].weight.mul_(3.0)


@torch.no_grad()
def nudge(model: nn.Module) -> None:
    model[0].weight.mul_(1.2)


@torch.no_grad()
def swap(model: nn.Module) -> None:
    held = model[0].weight.clone()
    model[0].weight.zero_()
    model[0].weight.copy_(held)


@pytest.mark.parametrize("overhead", [0.01, None])
@pytest.mark.parametrize("at", [3, AT, STEPS - 1])
def test_the_step_and_the_weights_are_facts(at: int, overhead: float | None) -> None:
    run = trained(rewrite, at, overhead=overhead)
    assert changes(run) == [(at - 1, at, ("0.weight",))]
    outside = run.scalar("outside").finite()
    assert outside.steps.tolist() == [at]
    assert outside.values[0] == pytest.approx(2.0, rel=1e-3)


def test_other_ways_of_writing_are_seen_too() -> None:
    def give(model: nn.Module) -> None:
        model[2].weight.data = torch.full((1, 8), 5.0)

    assert changes(trained(give)) == [(AT - 1, AT, ("2.weight",))]
    assert changes(trained(lambda model: model.apply(_again))) == [(AT - 1, AT, ("0.weight", "2.weight"))]


@torch.no_grad()
def _again(layer: nn.Module) -> None:
    if isinstance(layer, nn.Linear):
        layer.reset_parameters()


@pytest.mark.parametrize("act", [swap, lambda model: None], ids=["swap", "none"])
def test_what_is_put_back_before_the_next_step_is_no_change(act: Callable[[nn.Module], object]) -> None:
    run = trained(act)
    assert changes(run) == []
    assert not len(run.scalar("outside").finite())


def test_a_small_change_is_a_number_and_no_fact() -> None:
    run = trained(nudge)
    assert changes(run) == []
    assert run.scalar("outside").at(AT) == pytest.approx(0.2, rel=1e-3)


def test_what_another_optimizer_steps_is_not_compared() -> None:
    assert changes(trained(rewrite, optimizers=2)) == []
