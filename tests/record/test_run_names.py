"""Several runs and several ranks in one folder: each has a name of its own, and a folder stands for the newest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.record.known_steps import INFO, layout, step

from neuraldbg.config import RecordSettings
from neuraldbg.errors import RunNotFound
from neuraldbg.ranks import Rank, launched_at, own_rank
from neuraldbg.record import Recorder, RunName, find_run, others, read_run

SETTINGS = RecordSettings(flush_s=60)


def recorder(folder, steps=0, rank=0):
    made = Recorder(folder, SETTINGS, INFO, rank=rank)
    for i in range(steps):
        made.put(step(i), layout(), ())
    return made


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_a_live_run_is_left_where_it_is(tmp_path):
    first = recorder(tmp_path, 10)
    first.flush()
    before = first.path.stat().st_ino
    second = recorder(tmp_path, 20)
    assert (first.path.name, second.path.name) == ("rank0.ndbg", "rank0-2.ndbg")
    first.put(step(10), layout(), ())
    first.close()
    assert read_run(tmp_path).steps == 0  # the newest, which goes on
    second.close()
    third = recorder(tmp_path, 30)
    third.close()
    assert (tmp_path / "rank0.ndbg").stat().st_ino == before
    assert [read_run(tmp_path / name).steps for name in names(tmp_path)] == [20, 30, 11]
    assert names(tmp_path) == ["rank0-2.ndbg", "rank0-3.ndbg", "rank0.ndbg"]
    assert read_run(tmp_path).steps == 30
    assert first.record().steps == 11


RACING = """
import sys, time
from pathlib import Path
from neuraldbg.config import RecordSettings
from neuraldbg.record import Recorder
from tests.record.known_steps import INFO, layout, step

sys.stdin.readline()
recorder = Recorder(Path(sys.argv[1]), RecordSettings(), INFO)
print(recorder.path.name, flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[2])):
    recorder.put(step(i), layout(), ())
recorder.close()
"""


def test_six_runs_that_begin_at_once(tmp_path):
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]), "OMP_NUM_THREADS": "1"}
    folder = tmp_path / "run"
    processes = [
        subprocess.Popen([sys.executable, "-c", RACING, folder, str(10 + i)], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True, env=env)
        for i in range(6)
    ]  # fmt: skip
    for process in processes:
        process.stdin.write("\n\n")
        process.stdin.flush()
    steps = {}
    for i, process in enumerate(processes):
        with process:
            steps[process.communicate()[0].strip()] = 10 + i
        assert process.returncode == 0
    assert names(folder) == sorted(steps)
    assert {name: read_run(folder / name).steps for name in steps} == steps


def test_the_log_of_a_file_that_was_deleted_is_not_taken_for_that_of_a_new_one(tmp_path):
    (tmp_path / "rank0.ndbg-wal").write_bytes(b"x" * 100_000)
    made = recorder(tmp_path, 5)
    made.close()
    assert made.path.name == "rank0-2.ndbg"
    assert read_run(tmp_path).steps == 5


def test_a_folder_without_links_between_files(tmp_path, monkeypatch):
    def refuses(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuses)
    recorder(tmp_path, 5).close()
    recorder(tmp_path, 6).close()
    assert names(tmp_path) == ["rank0-2.ndbg", "rank0.ndbg"]
    assert read_run(tmp_path).steps == 6


def test_a_folder_stands_for_its_newest_run_of_its_lowest_rank(tmp_path):
    recorder(tmp_path / "run", 7, rank=3).close()
    assert read_run(tmp_path / "run").steps == 7
    assert others(tmp_path / "run", find_run(tmp_path / "run")) == ""
    recorder(tmp_path / "run", 5, rank=1).close()
    recorder(tmp_path / "run", 6, rank=1).close()
    for path in (tmp_path / "run", tmp_path):
        assert find_run(path).name == "rank1-2.ndbg"
        assert find_run(path, 3).name == "rank3.ndbg"
    with pytest.raises(RunNotFound, match="holds no rank 0; it has rank 1, 3"):
        find_run(tmp_path / "run", 0)
    said = others(tmp_path / "run", find_run(tmp_path / "run"))
    assert said.startswith("This is rank1-2.ndbg; the folder also holds rank1.ndbg, rank3.ndbg. ")
    assert said.endswith(str(tmp_path / "run" / "rank1.ndbg"))
    assert others(tmp_path / "run" / "rank3.ndbg", tmp_path / "run" / "rank3.ndbg") == ""


@pytest.mark.parametrize(
    ("name", "is_", "diagnosis"),
    [
        ("rank0.ndbg", RunName(0, 1), "diagnosis.json"),
        ("rank0-2.ndbg", RunName(0, 2), "diagnosis-2.json"),
        ("rank12.ndbg", RunName(12, 1), "diagnosis-rank12.json"),
        ("rank12-3.ndbg", RunName(12, 3), "diagnosis-rank12-3.json"),
        ("rank0.1.ndbg", None, None),
        ("rank.ndbg", None, None),
        ("rank0-.ndbg", None, None),
        ("rank٣.ndbg", None, None),
        (".rank0.ndbg.1234.new", None, None),
    ],
)
def test_names(name, is_, diagnosis):
    assert RunName.of(Path(name)) == is_
    if is_ is not None:
        assert str(is_) == name
        assert is_.beside("diagnosis") == diagnosis


@pytest.mark.parametrize(
    ("environment", "is_", "secondary"),
    [
        ({}, Rank(0, 1), False),
        ({"RANK": "0", "WORLD_SIZE": "2"}, Rank(0, 2), False),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, Rank(1, 2), True),
        ({"RANK": "1"}, Rank(1, 1), False),
        ({"RANK": "gold", "WORLD_SIZE": ""}, Rank(0, 1), False),
        ({"RANK": "-1", "WORLD_SIZE": "9" * 99}, Rank(0, 1), False),
    ],
)
def test_ranks(environment, is_, secondary):
    assert own_rank(environment) == is_
    assert is_.secondary is secondary


def test_the_ranks_of_one_machine_have_one_launcher():
    assert launched_at({}) is None
    assert launched_at({"RANK": "1", "WORLD_SIZE": "1"}) is None
    code = "from neuraldbg.ranks import launched_at; print(launched_at())"
    root = Path(__file__).parents[2] / "src"
    said = {
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(root), "RANK": rank,
                       "WORLD_SIZE": "2"}, capture_output=True, text=True, check=True).stdout
        for rank in "01"
    }  # fmt: skip
    assert len(said) == 1
    if sys.platform == "linux":
        assert float(said.pop()) > 1e9
