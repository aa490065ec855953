"""The three trainings by hand of ``examples/by_hand``: each has its fault named, and no alarm without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import neuraldbg

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "by_hand"
FAULTS = {
    "numpy_sigmoids": ("numpy", "vanishing_depth"),
    "jax_optax": ("jax", "lr_too_high"),
    "keras_fit": ("keras", "unnormalised_inputs"),
}
NEEDS = {"jax_optax": ("jax", "optax"), "keras_fit": ("keras",)}


def trained(name, folder, *args):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "KERAS_BACKEND": "torch"}
    line = [sys.executable, str(EXAMPLES / f"{name}.py"), *args]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, neuraldbg.load(folder / "runs" / FAULTS[name][0])


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_named(tmp_path, name):
    said, run = trained(name, tmp_path)
    first = run.explain_failure()[0]
    assert (run.diagnose().verdict, first.cause) == ("failing", FAULTS[name][1])
    assert first.remedy.code == "", "the code of a remedy is torch's"
    assert f"Likely cause: {first.cause}" in said
    assert "could be judged in full from what was recorded by hand" in said
    assert run.health().score <= 50
    assert json.loads((tmp_path / "runs" / FAULTS[name][0] / "diagnosis.json").read_text())["verdict"] == "failing"


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_without_the_fault_there_is_no_alarm(tmp_path, name):
    said, run = trained(name, tmp_path, "--sound")
    assert run.diagnose().verdict == "healthy", said
    assert run.health().score >= 90, said
