"""Sessions with histograms: the training stays what it is, and what is recorded is what there was."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tests.capture.captured_run import capture_run
from tests.capture.statistics.histogram_oracle import oracle
from tests.record.known_steps import assert_same
from tests.session.seeded_trainings import TRAININGS, same
from torch import Tensor, nn

from neuraldbg import NeuralDbg, Run
from neuraldbg.capture.statistics import histograms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OFF = {"capture": {"histograms": False}}


@pytest.fixture
def each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Histograms at every step."""
    monkeypatch.setattr(histograms, "APART", 0)
    monkeypatch.setattr(histograms, "GROWTH", (0, 1))


@pytest.mark.usefixtures("each_step")
@pytest.mark.parametrize("name", TRAININGS)
def test_with_histograms_at_each_step_training_is_bitwise_the_same(name: str) -> None:
    program = TRAININGS[name]
    same(program(lambda model: contextlib.nullcontext()), program(NeuralDbg))
    seen: list[NeuralDbg] = []

    def watch(model: nn.Module) -> NeuralDbg:
        seen.append(NeuralDbg(model))
        return seen[-1]

    program(watch)
    run = seen[0].record()
    assert [each.step for each in run.histograms] == list(range(run.steps))
    assert min(len(each.rows) for each in run.histograms) > 4


@pytest.mark.usefixtures("each_step")
@pytest.mark.parametrize("name", TRAININGS)
def test_the_statistics_are_the_same_with_and_without_histograms(name: str) -> None:
    def program() -> Any:
        return TRAININGS[name](lambda model: contextlib.nullcontext())

    binned, plain = capture_run(program), capture_run(program, histograms=False)
    assert all(step.histograms for step in binned.steps)
    assert binned.layout.sites == plain.layout.sites
    for one, other in zip(binned.steps, plain.steps, strict=True):
        np.testing.assert_array_equal(one.table, other.table)
        counts = one.table[one.histograms.rows, 1] - one.table[one.histograms.rows, 2]  # read, and not finite
        mine = np.array([one.histograms.counts_of(row).sum() for row in one.histograms.rows.tolist()])
        whole = one.table[one.histograms.rows, 0] <= 4096
        np.testing.assert_array_equal(mine[whole], counts[whole])


def test_the_file_of_a_run_has_the_histograms_of_its_tensors(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    weights: list[Tensor] = []
    with NeuralDbg(model, out=tmp_path) as dbg:
        for step in range(20):
            if step in (0, 8, 16):
                weights.append(model[0].weight.detach().clone())
            opt.zero_grad()
            model(torch.randn(16, 6)).square().mean().backward()
            opt.step()
    run = Run.load(tmp_path)
    assert_same(run.histograms, dbg.record().histograms)
    row = run.layout.rows("param", "0", "weight")[0]
    assert run.histogram(row).steps.tolist() == [0, 8, 16]
    for each, weight in zip(run.histograms, weights, strict=True):
        np.testing.assert_array_equal(each.counts_of(row), oracle(weight))
    assert {run.layout.sites[row].kind for row in run.histograms[0].rows} >= {
        "activation",
        "output_grad",
        "param",
        "param_grad",
        "update",
        "input",
    }


def test_what_takes_them_is_booked_and_the_setting_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counting that takes long is in the books, not in the time of the training."""
    import time

    def slowed(count: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*args: Any) -> Any:
            time.sleep(0.005)
            return count(*args)

        return slow

    for name in ("count_flat", "count_sample"):
        monkeypatch.setattr(histograms, name, slowed(getattr(histograms, name)))

    def spent(settings: dict[str, Any]) -> tuple[float, int]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        with NeuralDbg(model, probes=False, settings=settings) as dbg:
            for _ in range(8):
                opt.zero_grad()
                model(torch.randn(16, 6)).square().mean().backward()
                opt.step()
        run = dbg.record()
        return float(run.scalar("overhead").values[0]), sum(len(each.rows) for each in run.histograms)

    (with_them, sites), (without, none) = spent({}), spent(OFF)
    assert sites > 10
    assert none == 0
    assert with_them - without > 0.9 * sites * 0.005
