"""The report of the example that the README begins with: made by the commands, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MOST_BYTES = 2_000_000


def command(*args):
    done = subprocess.run(
        [sys.executable, "-m", "neuraldbg", *args], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_report_of_the_doomed_digits(tmp_path):
    pytest.importorskip("sklearn")
    command("run", "-o", str(tmp_path / "run"), str(ROOT / "examples" / "doomed_digits.py"))
    said = command("report", str(tmp_path / "run"), "-o", str(tmp_path / "report.html"))
    made = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert said == f"wrote {tmp_path / 'report.html'} ({len(made.encode()) / 1000:,.0f} kB)\n"
    assert len(made.encode()) <= MOST_BYTES
    assert "Learning rate too high" in made
    assert "doomed_digits.py:44" in made
