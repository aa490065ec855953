"""Layers that are unfrozen during a training: given to no optimizer, and the sound twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from tests.faults.corpus import Program, record
from tests.faults.golden import Golden
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg import Diagnosis

STEPS, LATE = 260, 150


def pieces() -> tuple[nn.Sequential, nn.Linear]:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU()), nn.Linear(16, 3)


def adam(*modules: nn.Module, lr: float = 3e-3) -> torch.optim.Optimizer:
    return torch.optim.Adam([p for m in modules for p in m.parameters() if p.requires_grad], lr)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, number: int, *, detach: bool = False) -> None:
    rule = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    for _ in range(number):
        x = torch.randn(32, 8)
        scores = model[1](model[0](x).detach()) if detach else model(x)
        optimizer.zero_grad()
        F.cross_entropy(scores, (x @ rule).argmax(1)).backward()
        optimizer.step()


def run_of(
    late: Callable[[nn.Module, nn.Module, torch.optim.Optimizer], torch.optim.Optimizer | None],
    last: int = STEPS,
    kept: list[nn.Module] | None = None,
    **more: bool,
) -> Callable[[], None]:
    """Return a training that trains trunk and head, then the head alone, and then calls ``late``."""

    def run() -> None:
        torch.manual_seed(0)
        trunk, head = pieces()
        steps(nn.Sequential(trunk, head), adam(trunk, head), 40)
        trunk.requires_grad_(requires_grad=False)
        model = nn.Sequential(trunk, nn.Linear(16, 3))
        optimizer = adam(model)
        if kept is not None:  # alive when the run ends, as in a script
            kept.append(model)
        steps(model, optimizer, LATE - 40)
        trunk.requires_grad_(requires_grad=True)
        steps(model, late(trunk, model, optimizer) or optimizer, last - LATE, **more)

    return run


def diagnosis(run: Callable[[], None], **capture: float) -> Diagnosis:
    return record(Program("stages", run, "stages", Golden(), "wiring"), capture={"allowance_s": 60.0, **capture})[1]


def test_a_trunk_that_no_optimizer_gets_is_named_at_the_step_at_which_it_was_unfrozen() -> None:
    found = diagnosis(run_of(lambda *_: None))
    assert found.verdict == "suspect"
    first = found.hypotheses[0]
    assert first.cause == "param_not_in_optimizer"
    assert abs(first.step - LATE) <= 2
    assert "unfrozen" in first.sentence


@pytest.mark.budget
def test_it_is_seen_where_hardly_a_step_was_read_since() -> None:
    run, found = record(
        Program("stages", run_of(lambda *_: None, last=192, kept=[]), "stages", Golden(), "wiring"),
        capture={"allowance_s": 0.0, "overhead": 1e-6},
    )
    assert run.history.read[run.history.steps > LATE].sum() <= 2  # a change of settings asks for them
    assert [one.cause for one in found.hypotheses] == ["param_not_in_optimizer"]
    assert LATE <= found.hypotheses[0].step < STEPS


def added(trunk: nn.Module, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    del model
    optimizer.add_param_group({"params": list(trunk.parameters()), "lr": 1e-3})


def made(trunk: nn.Module, model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    del trunk, optimizer
    return adam(model)


def test_a_trunk_that_an_optimizer_gets_is_not_named() -> None:
    for late in (added, made):
        found = diagnosis(run_of(late))
        assert found.verdict == "healthy", (late, found.hypotheses)


def test_an_unfrozen_trunk_without_gradients_is_not_named() -> None:
    found = diagnosis(run_of(lambda *_: None, detach=True))
    assert "param_not_in_optimizer" not in [one.cause for one in found.hypotheses], found.summary


def test_an_optimizer_that_always_held_the_trunk_holds_it_when_it_is_unfrozen() -> None:
    def run() -> None:
        torch.manual_seed(0)
        model = nn.Sequential(*pieces())
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        steps(model, optimizer, 40)
        model[0].requires_grad_(requires_grad=False)
        steps(model, optimizer, LATE - 40)
        model[0].requires_grad_(requires_grad=True)
        steps(model, optimizer, STEPS - LATE)

    assert diagnosis(run).verdict == "healthy"


class Adapted(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 3, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def test_adapters_on_frozen_weights_are_not_named() -> None:
    def run() -> None:
        torch.manual_seed(0)
        trunk, head = pieces()
        steps(nn.Sequential(trunk, head), adam(trunk, head), 60)
        trunk.requires_grad_(requires_grad=False)
        model = nn.Sequential(trunk, Adapted(head))
        steps(model, adam(model), STEPS - 60)

    assert "param_not_in_optimizer" not in [one.cause for one in diagnosis(run).hypotheses]
