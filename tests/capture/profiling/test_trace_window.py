"""A window of torch.profiler: every one that the program has steps for is written, beside the record of memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.guest.guard import Tally
from neuraldbg.capture.profiling.operation_counts import Observer
from neuraldbg.capture.profiling.trace_window import TraceWindow
from neuraldbg.nouns.facts.footprint import FootprintFact

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("first", [7, 8, 9, 10, 11, 12])
def test_every_window_is_written_and_memory_is_recorded_all_the_same(
    first: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with NeuralDbg(model, profile=True, out=tmp_path, trace=(first, first + 1)) as dbg:
        for _ in range(24):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
    (file,) = tmp_path.rglob(f"*trace-{first}-*.json")
    names = [event.get("name") for event in json.loads(file.read_text(encoding="utf-8"))["traceEvents"]]
    assert names.count("Optimizer.step#SGD.step") == 2
    assert not any("There is no trace" in note for note in dbg.profile().notes)
    fact = dbg.record().known(FootprintFact)
    assert fact is not None
    assert fact.method == "CPU allocator"
    assert "RecordFunction" not in capfd.readouterr().err


def test_a_record_of_ours_is_not_called_the_program_s(tmp_path: Path) -> None:
    def window() -> TraceWindow:
        return TraceWindow((1, 2), tmp_path / "trace.json", Tally())

    observer, late, never, other = Observer(), window(), window(), window()
    assert observer.start()
    late.next_step(1)
    never.next_step(1)
    assert not late.over
    observer.stop()
    late.next_step(2)
    assert late.on
    late.next_step(3)
    assert late.written
    never.next_step(3)
    assert never.problem == "another record of this tool ran until its last step"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        other.next_step(1)
    assert other.problem == "the program was running a profiler of its own"
