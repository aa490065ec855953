"""Growth of memory: leaks of real trainings are named with their lines, healthy programs raise no alarm."""

from __future__ import annotations

import gc
import os
import runpy
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.capture.profiling.growth_programs import HEALTHY, LEAKS, OVER, written
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.profiling.growth import Growth
from neuraldbg.capture.readers.loop.memory_in_use import device_bytes
from neuraldbg.memory_slope import Readings
from neuraldbg.nouns.facts.growth import GrowthFact, Survivors
from neuraldbg.process_memory import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from neuraldbg.nouns import RunRecord


def run(body: str, folder: Path, name: str, *, profile: bool | None = True) -> RunRecord:
    """Run a program under a session, and return its record."""
    file = written(body, folder, name)
    with NeuralDbg(discover=True, profile=profile) as dbg:
        runpy.run_path(str(file), run_name="__main__")
    return dbg.record()


def survivors(record: RunRecord) -> tuple[Survivors, ...]:
    known = record.known(GrowthFact)
    return known.survivors if known is not None else ()


def some(programs: Iterable[str], fast: int) -> list[Any]:
    """Return the names of all programs, those after the first few as slow tests."""
    return [pytest.param(name, marks=[pytest.mark.slow] if at >= fast else []) for at, name in enumerate(programs)]


@pytest.mark.parametrize("name", some(LEAKS, 7))
def test_leak_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    leak = LEAKS[name]
    found = survivors(run(leak.body, tmp_path, name))
    assert [one.holder for one in found] == [leak.holder]
    (one,) = found
    text = (tmp_path / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert one.kept is not None
    assert one.kept.file == str(tmp_path / f"{name}.py")
    assert text[one.kept.number - 1].strip() == one.kept.text == leak.kept
    assert one.with_graph == leak.graph
    assert one.per_step == pytest.approx(1.0, abs=0.15)
    if leak.made:
        assert one.made is not None
        assert one.made.text == leak.made
    if not leak.graph:
        assert one.mended == "", "what has no graph has none to lose"
    if leak.mended:
        assert one.mended == leak.mended


@pytest.mark.parametrize("name", some(HEALTHY, 10))
def test_healthy_program_has_no_leak(name: str, tmp_path: Path) -> None:
    record = run(HEALTHY[name], tmp_path, name)
    known = record.known(GrowthFact)
    assert known is not None
    assert known.counts >= 6, "tensors were counted"
    assert known.survivors == ()


@pytest.mark.parametrize("name", OVER)
def test_what_has_grown_and_is_over_is_no_leak(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are made whatever they cost, so that this does not depend on the machine."""
    monkeypatch.setattr(Growth, "_may", lambda part, now: True)
    file, told = written(OVER[name], tmp_path, name), []

    def counted(self: Growth, step: int, count: Any = Growth._count) -> None:
        count(self, step)
        told.append([one.holder for one in self._found.values()])

    monkeypatch.setattr(Growth, "_count", counted)
    with NeuralDbg(discover=True, profile=True, overhead=None) as dbg:
        runpy.run_path(str(file), run_name="__main__")
    assert [one for one in told if one], "it was told as long as it grew"
    assert survivors(dbg.record()) == ()


def test_bytes_of_a_kept_graph_are_those_of_its_saved_tensors(tmp_path: Path) -> None:
    """Without a backward pass the graph keeps what it saved: by hand, for a batch of 64 and a layer of 16."""
    (one,) = survivors(run(LEAKS["evaluation_with_graph"].body, tmp_path, "evaluation"))
    relu, difference, prediction, loss = 64 * 16 * 4, 0, 64 * 4, 4
    data, target = 64 * 8 * 4, 64 * 4  # the same in each step, so not of a step
    by_hand = relu + difference + prediction + loss
    assert by_hand * 0.95 <= one.bytes_per_step <= (by_hand + (data + target) / 8) * 1.15


def test_nothing_is_counted_unless_the_profile_is_asked_for_or_memory_grows(tmp_path: Path) -> None:
    for profile in (None, False):
        record = run(LEAKS["losses_appended"].body, tmp_path, f"losses_{profile}", profile=profile)
        known = record.known(GrowthFact)
        assert known is None or (known.counts == 0 and known.survivors == ())


def test_the_slope_has_its_own_steps(tmp_path: Path) -> None:
    """Without counts there is no span of counts, and the slope is told for the steps whose memory was read."""
    with NeuralDbg(discover=True, overhead=None) as dbg:
        runpy.run_path(str(written("for i in range(STEPS):\n    step(model, optimizer, i)", tmp_path, "plain")))
    known = dbg.record().known(GrowthFact)
    if resident_bytes() is None:
        return
    assert known is not None
    assert (known.counts, known.searched, known.survivors) == (0, False, ())
    assert known.slope_first is not None
    assert 15 <= known.slope_first < 50 < (known.slope_last or 0) < 80
    assert known.slope_steps == (known.slope_first, known.slope_last)


def test_training_is_bitwise_the_same_and_the_leak_is_all_that_stays(tmp_path: Path) -> None:
    def train(*, watched: bool) -> tuple[list[torch.Tensor], weakref.ref[nn.Module], torch.Tensor]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.2), nn.Tanh(), nn.Linear(12, 1))
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        x, losses = torch.randn(16, 6), []
        dbg = NeuralDbg(model, profile=True if watched else None)
        if watched:
            dbg.start()
        for _ in range(60):
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss)
        if watched:
            dbg.stop()
            assert [one.holder for one in survivors(dbg.record())] == ["losses"]
        return [p.detach().clone() for p in model.parameters()], weakref.ref(model), torch.get_rng_state()

    bare, _, state = train(watched=False)
    seen, model, after = train(watched=True)
    assert all(torch.equal(a, b) for a, b in zip(bare, seen, strict=True))
    assert torch.equal(state, after)
    gc.collect()
    assert model() is None, "nothing of ours keeps the model alive"


def test_time_of_counting_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    took = []

    def slow(self: Growth, step: int, count: Any = Growth._count) -> None:
        began = time.perf_counter()
        time.sleep(0.02)
        count(self, step)
        took.append(time.perf_counter() - began)

    monkeypatch.setattr(Growth, "_count", slow)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with NeuralDbg(model, profile=True) as dbg:
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert len(took) == 5
    assert sum(dbg.record().info.coverage["cost"]["parts_s"].values()) > sum(took)


class TestMemoryInUse:
    """The scalars ``resident`` and ``device_memory``."""

    def test_resident_memory_is_that_of_the_system(self) -> None:
        if not os.path.exists("/proc/self/status"):  # noqa: PTH110
            assert resident_bytes() is None
            return
        with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123
            told = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))
        found = resident_bytes()
        assert found is not None
        assert abs(found - told) < 8 << 20

    def test_recorded_in_full_steps(self) -> None:
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        kept = []
        with NeuralDbg(model) as dbg:
            for _ in range(6):
                kept.append(torch.ones(4 << 20))
                optimizer.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
        values = dbg.record().scalar("resident").values
        if resident_bytes() is None:
            assert len(values) == 0
        else:
            assert len(values) == 6
            assert values[-1] - values[0] == pytest.approx(5 * (16 << 20), rel=0.2)

    def test_no_device_is_touched(self) -> None:
        if not torch.cuda.is_available():
            assert device_bytes() is None

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_device_memory_is_that_of_the_allocator(self) -> None:
        held = torch.ones(1 << 20, device="cuda")
        assert device_bytes() == sum(torch.cuda.memory_allocated(i) for i in range(torch.cuda.device_count()))
        del held


class TestSlope:
    """The slope of readings."""

    def test_slope_of_a_leak_below_noise(self) -> None:
        readings = Readings()
        for step in range(2000):
            readings.add(step, 5e8 + 1000.0 * step + 3e6 * (step % 7 == 0))
        slope = readings.slope()
        assert slope == pytest.approx(1000.0, rel=0.05)

    def test_no_growth_after_a_warm_up(self) -> None:
        readings = Readings()
        for step in range(600):
            readings.add(step, 5e8 + 1e8 * min(1.0, step / 100))
        assert readings.slope() == 0
        assert not readings.grows()

    def test_long_growth_begins_the_counting(self) -> None:
        readings = Readings()
        for step in range(600):
            readings.add(step, 2e8 + 1e6 * step)
        assert readings.grows()

    def test_too_few_readings_have_no_slope(self) -> None:
        readings = Readings()
        for step in range(10):
            readings.add(step, 1e8 * step)
        assert readings.slope() is None
