"""While a CUDA graph is captured nothing is asked of a device: events are those of a stand-in that a query breaks."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from tests.capture.profiling.profiled_run import timing_of
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.guest.guard import Tally
from neuraldbg.capture.profiling import timing as timing_module
from neuraldbg.capture.profiling.matmul_rate import MatmulRate
from neuraldbg.capture.profiling.step_clock import DeviceClock, clock_of

if TYPE_CHECKING:
    from collections.abc import Iterator


class Device:
    """The stand-in: events are passed when they are recorded. It notes what would break a capture."""

    def __init__(self) -> None:
        self.capturing = False
        self.broken: list[str] = []
        self.now = itertools.count()

    def event(self, **_: object) -> Event:
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.at, self.in_graph = device, -1, False

    def record(self, stream: object) -> None:
        del stream
        self.at, self.in_graph = next(self.device.now), self.device.capturing
        if self.in_graph:
            self.device.broken.append("an event became a part of the graph")

    def query(self) -> bool:
        if self.device.capturing:
            self.device.broken.append("query")
            message = "operation not permitted when stream is capturing"
            raise RuntimeError(message)
        if self.in_graph:
            message = "operation not permitted on an event last recorded in a capturing stream"
            raise RuntimeError(message)
        return True

    def elapsed_time(self, other: Event) -> float:
        assert not self.in_graph
        return float(other.at - self.at)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    found = Device()
    monkeypatch.setattr(torch.cuda, "Event", found.event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: found.capturing)
    monkeypatch.setattr(timing_module, "clock_of", lambda devices, tally: DeviceClock(torch.device("cuda", 0)))
    return found


def test_a_step_that_is_captured_is_not_timed_and_others_are(device: Device) -> None:
    """As in torch's recipe for a whole network: some steps, then one that is captured, then others."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    captured = {3, 4, 5, 20}
    with NeuralDbg(model, profile=True) as dbg:
        for step in range(400):
            device.capturing = step in captured
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
            if step in captured:
                dbg.profile()  # facts are read at any time
            device.capturing = False
    assert device.broken == []
    assert dbg.record().info.coverage["errors"] == 0
    timing = timing_of(dbg)
    assert timing.clock == "cuda"
    assert timing.steps > 2
    assert timing.last > 5
    assert [one.layer for one in timing.layers] == ["", "0", "1", "2"]


def test_capture_that_begins_within_a_sampled_step_drops_it(device: Device) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with NeuralDbg(model, profile=True) as dbg:
        timer = next(part for part in dbg._profile._parts if isinstance(part, timing_module.Timing))
        for _ in range(50):
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
            if timer._sampled.on:
                break
        model(torch.ones(2, 4))
        device.capturing = True
        model(torch.ones(2, 4)).square().mean().backward()
        device.capturing = False
        assert timer._sampled.spoiled
        optimizer.step()
    assert device.broken == []
    assert dbg.record().info.coverage["errors"] == 0


def test_the_rate_of_a_product_is_not_asked_for_within_a_capture(device: Device) -> None:
    rate = MatmulRate(torch.device("cuda", 0), torch.float32)
    began, ended = device.event(), device.event()
    began.record(None)
    ended.record(None)
    rate._events = began, ended
    device.capturing = True
    assert rate.flops() is None
    assert device.broken == []
    device.capturing = False
    assert rate.flops() == pytest.approx(2 * rate.size**3 / (0.001 / 3))


def test_a_sample_whose_marks_cannot_be_read_does_not_end_the_timing(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURALDBG_STRICT", "")
    fails = SimpleNamespace(left=1)
    read = DeviceClock.seconds

    def seconds(clock: DeviceClock, marks: list[Event]) -> list[float]:
        fails.left -= 1
        if fails.left >= 0:
            message = "the device refuses"
            raise RuntimeError(message)
        return read(clock, marks)

    monkeypatch.setattr(DeviceClock, "seconds", seconds)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with NeuralDbg(model, profile=True) as dbg:
        for _ in range(20):
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
    assert dbg.record().info.coverage["errors"] == 1
    assert timing_of(dbg).steps > 1


def test_only_one_cuda_device_has_a_clock_of_its_own() -> None:
    def name(*devices: str) -> str:
        return clock_of({torch.device(one) for one in devices}, Tally()).name

    assert name("cpu") == name() == "cpu"
    assert name("cuda:0") == "cuda"
    assert {name("cuda:0", "cuda:1"), name("cpu", "cuda:0"), name("mps"), name("xpu:0")} == {"host"}


def test_shares_are_not_told_of_work_that_was_timed_at_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_module, "devices_of", lambda parameters: {torch.device("mps")})
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with NeuralDbg(model, profile=True) as dbg:
        for _ in range(12):
            model(torch.ones(2, 4)).square().mean().backward()
            time.sleep(0.01)  # a bottleneck, if the rest of the step were its time
            optimizer.step()
    profile = dbg.profile()
    assert profile.timing is not None
    assert (profile.timing.clock, profile.timing.doubtful) == ("host", True)
    assert profile.timing.caution().startswith("Work on the model's devices was timed when it was launched")
    assert list(profile.parts()) == []
    assert not profile.bottlenecks
