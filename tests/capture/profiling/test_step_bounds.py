"""The bounds of a sampled or recorded step: whatever a program does until its next step, little of it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tests.capture.profiling.profiled_run import timing_of
from torch import nn
from torch.utils.data import DataLoader

from neuraldbg import NeuralDbg
from neuraldbg.capture.profiling import step_bounds
from neuraldbg.capture.profiling.footprint import Footprint
from neuraldbg.capture.profiling.step_bounds import LeadOptimizer, most_events, recorded_s
from neuraldbg.capture.profiling.timing import Timing
from neuraldbg.nouns.facts.footprint import FootprintFact

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.capture.profiling.part import Part

SMALL = 300
"""Events of a step in these tests: an ordinary one has about twenty."""


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_bounds, "_BOUNDS", (SMALL, SMALL, SMALL))


def part_of(dbg: NeuralDbg, kind: type[Part]) -> Part:
    return next(part for part in dbg._profile._parts if isinstance(part, kind))


class Training:
    """A small model and its optimizer."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        optimizer = optimizer or self.optimizer
        optimizer.zero_grad()
        self.model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()

    def until(self, reached: Callable[[], bool], most: int = 4000) -> None:
        """Train until something is so."""
        for _ in range(most):
            self.step()
            if reached():
                return
        pytest.fail("it was never so")

    @torch.no_grad()
    def evaluate(self, batches: int = 400) -> None:
        for _ in range(batches):
            self.model(torch.ones(2, 4))


@pytest.mark.parametrize("counts", [False, True])
def test_an_evaluation_within_a_sampled_step_is_not_kept(counts: bool) -> None:
    training = Training()
    with NeuralDbg(training.model, profile=True) as dbg:
        timer = part_of(dbg, Timing)
        assert isinstance(timer, Timing)
        sampled = timer._sampled
        training.until(lambda: sampled.on and sampled.counts == counts)
        kept = []
        for _ in range(4):
            training.evaluate()
            kept.append(len(sampled.events.marks))
        assert max(kept) <= SMALL
        assert sampled.spoiled
        assert not torch.autograd._profiler_enabled()
        training.until(lambda: timer._steps > 4)
    timing = timing_of(dbg)
    assert timing.evaluation_s == 0.0
    assert {one.calls for one in timing.layers} == {1}
    assert max(len(spans) for _, spans in timer._times) < SMALL
    assert dbg.record().info.coverage["errors"] == 0


def test_steps_that_did_the_same_share_their_events() -> None:
    training = Training()
    with NeuralDbg(training.model, profile=True) as dbg:
        timer = part_of(dbg, Timing)
        assert isinstance(timer, Timing)
        training.until(lambda: timer._steps > 5)
        assert len({id(events) for events, _ in timer._times}) <= 2  # gradients are made in the first
        assert not any(events.marks for events, _ in timer._times)


def test_an_evaluation_within_a_recorded_step_ends_the_record_and_a_later_step_is_recorded() -> None:
    training = Training()
    with NeuralDbg(training.model, profile=True) as dbg:
        memory = part_of(dbg, Footprint)
        assert isinstance(memory, Footprint)
        for measures in (False, True):
            training.until(lambda measures=measures: memory._record.on and memory._record.measures == measures)
            training.evaluate()
            assert not memory._record.on
            assert not torch.autograd._profiler_enabled()
        for _ in range(5):
            training.step()
    fact = dbg.record().known(FootprintFact)
    assert fact is not None
    assert fact.method == "CPU allocator"
    assert dbg.record().info.coverage["errors"] == 0


@pytest.mark.parametrize("kind", [Timing, Footprint])
def test_a_model_that_is_not_watched_is_recorded_for_seconds_only(
    kind: type[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_bounds, "_RECORDED_S", 0.0)
    training, other = Training(), nn.Linear(4, 4)
    with NeuralDbg(training.model, profile=True) as dbg:
        part = part_of(dbg, kind)
        if isinstance(part, Timing):
            training.until(lambda: part._sampled.on and part._sampled.counts)
        else:
            assert isinstance(part, Footprint)
            training.until(lambda: part._record.on)
        assert torch.autograd._profiler_enabled()
        for batch in DataLoader(torch.ones(2000, 4), batch_size=2):
            other(batch)
        assert not torch.autograd._profiler_enabled()


def test_another_optimizer_leads_once_the_first_is_silent() -> None:
    """The first optimizer is still there, as in a program that trains in two phases."""
    training = Training()
    with NeuralDbg(training.model, profile=True) as dbg:
        timer = part_of(dbg, Timing)
        assert isinstance(timer, Timing)
        for _ in range(5):
            training.step()
        second = torch.optim.Adam(training.model.parameters())
        for _ in range(600):
            training.step(second)
        assert timer._number > 300
    fact = dbg.record().known(FootprintFact)
    assert fact is not None
    assert fact.method == "CPU allocator", "the steps of the second optimizer are recorded"
    assert timing_of(dbg).last > 256


def test_the_lead_is_kept_while_it_steps_from_time_to_time() -> None:
    lead, other = (torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1) for _ in range(2))
    leader = LeadOptimizer()
    assert leader.ends(lead)
    assert not leader.changed
    for _ in range(3):
        assert not any(leader.ends(other) for _ in range(100))  # a critic, before its generator
        assert leader.ends(lead)
    led = [leader.ends(other) for _ in range(300)]
    assert led.index(True) == 256
    assert all(led[256:])
    assert not leader.ends(lead)
    del other
    new = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    assert leader.ends(new), "the lead is gone"
    assert not leader.changed


def test_bounds_follow_the_steps_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert most_events([], 0) == 20_000
    assert [most_events([], dropped) for dropped in (1, 2, 9)] == [80_000, 320_000, 320_000]
    assert most_events([30_000, 30_000, 90_000], 0) == 120_000
    assert recorded_s([]) == 5.0
    assert recorded_s([1.0, 60.0, 60.0]) == 240.0
