"""A long run is exported in bounded memory, whatever its tables would take as plain arrays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neuraldbg import Run
from neuraldbg.nouns import STATS

ROOT = Path(__file__).parents[2]
SITES, STEPS = 100, 20_000
RECORD = f"""
import sys
from pathlib import Path
sys.path.insert(0, "benchmarks")
import export
export.simulated(Path(sys.argv[1]), {STEPS}, {SITES})
"""


def python(*args):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *args], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_memory_is_that_of_a_few_tables(tmp_path):
    python("-c", RECORD, str(tmp_path))
    history = Run.load(tmp_path).history
    dense = 3 * len(history) * SITES * len(STATS) * 4 / 2**20
    for form in ("csv", "json", "perfetto"):
        took = json.loads(python("benchmarks/export.py", "--one", str(tmp_path), form))
        assert took["size"] > 5
        assert took["peak"] - took["peak_before"] < dense / 4, f"{form}: as plain arrays it is {dense:.0f} MiB"
