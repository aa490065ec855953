"""Some of the faults as scripts of their own under ``neuraldbg run``, as a person meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.edits import TASKS, every

SCRIPTS = Path(__file__).parent / "scripts"
SOURCE = Path(__file__).parents[2] / "src"


def diagnose(name, tmp_path, *more):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "neuraldbg", "run", "-o", str(tmp_path / "run"), str(SCRIPTS / name), *more]
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
    assert found["verdict"] == "failing"
    assert "RuntimeError" in found["summary"]
    assert "crash.py:11" in found["summary"]
    (named,) = found["hypotheses"]
    assert (named["cause"], named["step"]) == ("refused_operation", 40)
    assert "7 features for a layer that was made for 8" in named["sentence"]
    assert named["places"][0]["line"] == 11
    assert "loss = F.cross_entropy(model(x)" in named["places"][0]["code"]


def test_a_task_with_its_own_arguments_is_healthy(tmp_path):
    done, found = diagnose(TASKS / "digits_mlp.py", tmp_path, "--seed", "1", "--epochs", "6")
    assert (done.returncode, found["verdict"], found["hypotheses"]) == (0, "healthy", [])
    assert found["run"]["argv"][-4:] == ["--seed", "1", "--epochs", "6"]


@pytest.mark.parametrize("name", ["digits_mlp_softmax_layer", "cnn_head_exchanged_late"])
def test_an_edited_script_as_a_person_prints_and_runs_it(name, tmp_path):
    shown = subprocess.run(
        [sys.executable, "-m", "tests.faults.show", name],
        cwd=SOURCE.parent, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    script = tmp_path / "x.py"
    script.write_text(shown.stdout, encoding="utf-8")
    done, found = diagnose(script, tmp_path, "--seed", "1")
    golden = every()[name].golden
    assert done.returncode == 0
    assert found["hypotheses"][0]["cause"] in golden.cause
    assert found["hypotheses"][0]["layer"] in golden.layer
    assert found["hypotheses"][0]["step"] == golden.step
