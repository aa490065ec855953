"""`benchmarks/neural_files.py`: the files of a folder that are read, checked, built and trained."""

import subprocess
import sys
from pathlib import Path

from tests.neural.sample_files import CNN, RESEARCH, SEVERAL_NETWORKS, network

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "neural_files.py"


def test_the_table(tmp_path):
    (tmp_path / "deep").mkdir()
    files = {
        "a.neural": CNN,
        "b.nr": "netwrk",
        "c.rnr": RESEARCH,
        "deep/d.neural": SEVERAL_NETWORKS,
        "e.neural": network("    Dens(3)"),
        "f.txt": "",
        "g.neural": network("    L2(0.1) Dense(3)"),
        "h.neural": network("    Dense(6000) Dense(6000)"),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, PROGRAM, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[1][:8] == ["a.neural", "Digits", "yes", "yes", "yes", "yes", "6", "43,706"]
    assert done.stdout.splitlines()[2].endswith("line 1: 'netwrk' cannot stand here")
    assert lines[3][0] == "c.rnr"
    assert [line[1] for line in lines[4:6]] == ["Small", "Large"]
    assert done.stdout.splitlines()[6].endswith("line 4: unknown layer 'Dens'")
    assert lines[7][:6] == ["g.neural", "Model", "yes", "yes", "no", "no"]
    assert "line 4: L2 adds its input to the loss, which is not built" in done.stdout.splitlines()[7]
    assert lines[8][:6] == ["h.neural", "Model", "yes", "yes", "yes", "shapes"]
    total = (
        "7 files: 6 read, 5 checked; 6 of 8 networks or research, 4 built, 3 trained and 1 run for their shapes alone;"
    )
    assert done.stdout.splitlines()[-1].startswith(total)


def test_without_a_folder():
    assert subprocess.run([sys.executable, PROGRAM], capture_output=True, check=False).returncode == 2
