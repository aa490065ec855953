"""The faults rebuilt from public reports: their goldens are whole, and some of them as a person meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neuraldbg.explain import CAUSES

REPORTS = Path(__file__).parent / "reports"
GOLDENS = json.loads((REPORTS / "goldens.json").read_text(encoding="utf-8"))
SOURCE = Path(__file__).parents[2] / "src"


def test_every_script_has_a_golden_and_every_fault_a_mended_twin():
    assert {p.name for p in REPORTS.glob("*.py")} == set(GOLDENS)
    faults = {name for name, golden in GOLDENS.items() if golden["cause"]}
    assert len(faults) >= 148
    twins = {name.replace(".py", "_fixed.py") for name in faults}
    assert {name for name in GOLDENS if not GOLDENS[name]["cause"] and not name.startswith("healthy")} == twins
    assert {cause for golden in GOLDENS.values() for cause in golden["cause"]} <= {cause.id for cause in CAUSES}
    assert all(GOLDENS[name]["source"] for name in faults)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["01_kws_executor", "01_kws_executor_fixed", "48_transformer_tutorial", "86_resnet_main", "healthy_01"]
)
def test_a_script_under_the_command(name, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "neuraldbg", "run", "-q", "-o", str(tmp_path / "run"), str(REPORTS / f"{name}.py")]
    subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=200)
    found = json.loads((tmp_path / "run" / "diagnosis.json").read_text(encoding="utf-8"))
    accepted = GOLDENS[f"{name}.py"]["cause"]
    if accepted:
        assert found["hypotheses"][0]["cause"] in accepted
    else:
        assert (found["verdict"], found["hypotheses"]) == ("healthy", [])
