"""The faults rebuilt from public reports: their goldens are whole, their fixes fit, and some as a person meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpus.fixes import FIXES
from tests.families import some
from tests.faults import edits, show
from tests.faults.report_scripts import FAULTS, GOLDENS, HEALTHY, WRITTEN, every, mended, script

from neuraldbg.explain import CAUSES

SOURCE = Path(__file__).parents[2] / "src"


def test_every_script_has_a_golden_and_every_fault_a_fix():
    faults, healthy = {p.stem for p in FAULTS.glob("*.py")}, {p.stem for p in HEALTHY.glob("*.py")}
    assert len(faults) >= 148
    assert set(FIXES) == faults
    assert {f"{name}.py" for name in faults | healthy} == set(WRITTEN)
    assert set(GOLDENS) == set(WRITTEN) | {f"{name}_fixed.py" for name in faults}
    assert {name for name, golden in GOLDENS.items() if golden["cause"]} == {f"{name}.py" for name in faults}
    assert {cause for golden in GOLDENS.values() for cause in golden["cause"]} <= {cause.id for cause in CAUSES}
    assert all(GOLDENS[f"{name}.py"]["source"] for name in faults)


@pytest.mark.parametrize("fault", sorted(FIXES))
def test_a_fix_fits_its_fault(fault):
    text = mended(fault)
    assert text != every()[fault].text, "a fix that fixes nothing"
    compile(text, f"{fault}_fixed.py", "exec")


@pytest.mark.parametrize("times", [0, 2])
def test_a_fix_that_no_longer_fits_is_an_error(times, monkeypatch):
    monkeypatch.setitem(FIXES, "01_kws_executor", [("loss.backward()", "pass", times)])
    with pytest.raises(edits.EditError, match=f"_fixed: .* occurs 1 times in 01_kws_executor.py, not {times}"):
        mended("01_kws_executor")


def test_no_two_scripts_have_one_name():
    assert not edits.every().keys() & every().keys()


def test_show_prints_a_fault_and_what_mends_it(capsys):
    assert show.main(["01_kws_executor"]) == 0
    assert capsys.readouterr().out == (FAULTS / "01_kws_executor.py").read_text(encoding="utf-8")
    assert show.main(["01_kws_executor_fixed"]) == 0
    assert capsys.readouterr().out == mended("01_kws_executor")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    some(["01_kws_executor", "01_kws_executor_fixed", "48_transformer_tutorial", "86_resnet_main", "healthy_01"], 4),
)
def test_a_script_under_the_command(name, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    path = script(name, tmp_path)
    words = [sys.executable, "-m", "neuraldbg", "run", "-q", "-o", str(tmp_path / "run"), str(path)]
    subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=200)
    found = json.loads((tmp_path / "run" / "diagnosis.json").read_text(encoding="utf-8"))
    accepted = GOLDENS[f"{name}.py"]["cause"]
    if accepted:
        assert found["hypotheses"][0]["cause"] in accepted
    else:
        assert (found["verdict"], found["hypotheses"]) == ("healthy", [])
