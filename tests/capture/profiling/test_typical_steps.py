"""The typical step of a training whose steps differ: no part of the time is left out, and operations fit the times."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import torch
from tests.capture.profiling.profiled_run import layers_of, timing_of
from tests.capture.profiling.test_timing import Sleeps
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.profiling import timing as timing_module
from neuraldbg.capture.profiling.operation_counts import Counts, mean_counts
from neuraldbg.capture.profiling.step_events import FORWARD, OTHER, StepEvents, alike, ordinary, typical
from neuraldbg.capture.profiling.timing import Timing

if TYPE_CHECKING:
    from neuraldbg.nouns.facts.timing import TimingFact

CRITIC, GENERATOR = 0, 1


def made(layer: int, seconds: float) -> tuple[StepEvents, list[float]]:
    """A step in which one layer runs, with a millisecond before and behind it."""
    events = StepEvents()
    events.enter(layer, 0, 0.0, graded=True)
    events.leave(layer, 1, 0.0)
    return events, [0.001, seconds, 0.001]


def test_the_expensive_step_among_several_counts_by_its_frequency() -> None:
    cycle = [made(CRITIC, 0.002)] * 4 + [made(GENERATOR, 0.040)]
    kept = ordinary(cycle * 3)
    step = typical(kept)
    assert alike(kept) == pytest.approx(0.8)
    assert step.layers[CRITIC].own_forward == pytest.approx(0.8 * 0.002)
    assert step.layers[GENERATOR].own_forward == pytest.approx(0.2 * 0.040)
    assert step.total == pytest.approx(sum(sum(spans) for _, spans in cycle) / 5)
    assert step.phases == {
        **dict.fromkeys(step.phases, 0.0),
        FORWARD: pytest.approx(0.0096),
        OTHER: pytest.approx(0.002),
    }
    assert step.layers[GENERATOR].calls == 1


def test_what_is_rare_or_cheap_is_left_out() -> None:
    plain = [made(CRITIC, 0.002)] * 30
    for odd in (made(GENERATOR, 5.0), made(GENERATOR, 0.001)):
        kept = ordinary([*plain, odd])
        assert alike(kept) == 1.0
        assert list(typical(kept).layers) == [CRITIC]
        assert typical(kept).total == pytest.approx(0.004)


def test_operations_are_told_only_of_shapes_that_take_most_of_the_time() -> None:
    known = {"short": Counts(total=100.0, forward={0: 60.0}), "long": Counts(total=900.0, forward={0: 500.0})}
    assert mean_counts(["short", "short"], [1.0, 1.0], known) is known["short"]
    mean = mean_counts(["short", "long"], [1.0, 9.0], known)
    assert mean is not None
    assert (mean.total, mean.forward[0]) == (500.0, 280.0)
    assert mean_counts(["short", "long", "longer"], [1.0, 1.0, 8.0], known) is None
    some = mean_counts(["short", "long", "longer"], [1.0, 9.0, 2.0], known)
    assert some is not None
    assert some.total / 4.0 == pytest.approx(1000.0 / 10.0), "at the rate of those that were counted"
    assert mean_counts(["longer"], [1.0], known) is None


class Adversarial(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = Sleeps(0.012, 0.0), Sleeps(0.0005, 0.0)


def test_the_generator_of_a_training_with_five_steps_of_the_critic_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_module, "SHARE", 0.1)
    model = Adversarial()
    critic, generator = (torch.optim.SGD(part.parameters(), lr=1e-6) for part in (model.critic, model.generator))
    met: Counter[int] = Counter()
    with NeuralDbg(model, profile=True) as dbg:
        timer = next(part for part in dbg._profile._parts if isinstance(part, Timing))
        for step in itertools.count():
            critic.zero_grad()
            model.critic(torch.ones(1)).sum().backward()
            critic.step()
            if step % 5 == 4:
                generator.zero_grad()
                model.critic(model.generator(torch.ones(1))).sum().backward()
                generator.step()
            met[step % 5] += timer._sampled.on and not timer._sampled.counts
            with_generator = sum(len(events.order()) == 2 for events, _ in timer._times)
            if (min(met[phase] for phase in range(5)) > 0 and with_generator > 1) or step > 2000:
                break
    timing = timing_of(dbg)
    assert min(met[phase] for phase in range(5)) > 0, f"each step of the cycle is sampled: {met}"
    layers = layers_of(timing)
    kept = [one for one, _ in ordinary(list(timer._times))]
    with_generator = sum(len(one.order()) == 2 for one in kept)
    assert with_generator > 0
    assert 0.9 * 0.012 < layers["generator"].own_forward_s * len(kept) / with_generator < 3 * 0.012
    assert timing.alike < 1.0
    assert any(note.startswith("Steps differ: ") for note in dbg.profile().notes)
    assert not timing.doubtful


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are sampled as often as the test needs."""
    monkeypatch.setattr(timing_module, "SHARE", 5.0)


def trained(batches: list[int], counts: int) -> tuple[TimingFact, Timing, list[str]]:
    """Train a layer of 32 x 32 on batches of these sizes in turn until eight steps were timed, and so many of their
    shapes counted.
    """
    model = nn.Linear(32, 32, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with NeuralDbg(model, profile=True) as dbg:
        timer = next(part for part in dbg._profile._parts if isinstance(part, Timing))
        for step in range(20_000):
            optimizer.zero_grad()
            model(torch.ones(batches[step % len(batches)], 32)).square().mean().backward()
            optimizer.step()
            live = {events.shapes for events, _ in timer._times}
            if len(timer._times) >= 8 and len(live & timer._counts.keys()) >= counts:
                break
    return timing_of(dbg), timer, list(dbg.profile().notes)


@pytest.mark.usefixtures("often")
def test_operations_are_those_of_the_shapes_whose_time_is_told() -> None:
    timing, timer, _ = trained([8, 4096, 512], 3)
    kept = ordinary(list(timer._times))
    sizes = [int(events.shapes[0][0][0].partition("[")[2].partition(",")[0]) for events, _ in kept]
    assert set(sizes) == {8, 512, 4096}
    assert timing.shapes == 3
    assert timing.flops == pytest.approx(sum(4 * size * 32 * 32 for size in sizes) / len(sizes), rel=1e-6)


@pytest.mark.usefixtures("often")
def test_operations_of_ever_new_shapes_are_not_known() -> None:
    timing, _, notes = trained(list(range(8, 1008)), 0)
    assert timing.flops is None
    assert timing.shapes > 5
    assert any(note.startswith("Operations are not told: inputs came in ") for note in notes)
    assert not any(note.startswith("Operations were not counted") for note in notes)
