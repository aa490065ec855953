"""Some of the faults as scripts of their own under ``neuraldbg run``, as a person meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
SOURCE = Path(__file__).parents[2] / "src"


def diagnose(name, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "neuraldbg", "run", "-o", str(tmp_path / "run"), str(SCRIPTS / name)]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    found = json.loads((tmp_path / "run" / "diagnosis.json").read_text(encoding="utf-8"))
    return done, found


def test_gradients_that_are_never_cleared(tmp_path):
    done, found = diagnose("zero_grad.py", tmp_path)
    assert done.returncode == 0
    assert found["hypotheses"][0]["cause"] == "missing_zero_grad"
    assert found["hypotheses"][0]["step"] == 1


def test_the_same_training_without_the_fault(tmp_path):
    done, found = diagnose("healthy.py", tmp_path)
    assert (done.returncode, found["verdict"], found["hypotheses"]) == (0, "healthy", [])


def test_a_crash_is_not_called_healthy(tmp_path):
    done, found = diagnose("crash.py", tmp_path)
    assert done.returncode == 1
    assert found["verdict"] == "inconclusive"
    assert "RuntimeError" in found["summary"]
    assert "crash.py:11" in found["summary"]
