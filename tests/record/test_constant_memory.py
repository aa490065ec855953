"""The benchmark of memory, scaled down: a long run takes constant memory, and its file is read back at once."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from neuraldbg.config import RecordSettings
from neuraldbg.record import file_bound

FILE = Path(__file__).parents[2] / "benchmarks" / "memory.py"
SITES, STEPS, BUDGET = 100, 60_000, 8


@pytest.fixture(scope="module")
def memory():
    spec = importlib.util.spec_from_file_location("benchmark_of_memory", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_a_long_run_takes_constant_memory_and_is_read_at_once(memory):
    settings = RecordSettings(budget_mb=BUDGET)
    result = memory.measure(STEPS, SITES, 50, settings)
    marks = result.marks
    assert max(mark.rss for mark in marks[2:]) - min(mark.rss for mark in marks[2:]) < BUDGET / 2
    assert result.file * memory.MIB <= file_bound(settings, SITES)
    assert result.nonfinite[0] == result.nonfinite[1] == STEPS / 10_000
    # Times as ratios: what the machine does beside is not the matter here. The first mark is after full steps alone.
    assert marks[-1].writer_us < marks[0].writer_us
    assert sorted(result.series_ms)[5] < result.open_ms
    assert result.rows < 6000


def test_the_benchmark_runs_as_a_script(tmp_path):
    command = [sys.executable, FILE, "--steps", "3000", "--sites", "20", "--all-full", "--json", tmp_path / "m.json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "3,000 of them full" in done.stdout
    assert (tmp_path / "m.json").exists()
