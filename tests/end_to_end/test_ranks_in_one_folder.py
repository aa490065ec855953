"""Several runs and several ranks in one folder: each keeps its own file and diagnosis, and says what it is called."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.end_to_end.place import DATA, HEAD, MODEL, TRAIN, Place, healthy

RANKS = (
    HEAD
    + """
import os
import torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
"""
    + DATA
    + MODEL
    + "model = nn.parallel.DistributedDataParallel(model)\n"
    + TRAIN.format(steps=30)
    + "dist.destroy_process_group()\n"
)


def test_two_ranks_share_a_folder_and_no_file(place: Place) -> None:
    place.write("train.py", RANKS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "neuraldbg", "run", "-o", "run", "--json", "d.json", "train.py"]
    done = subprocess.run(command, cwd=place.path, env=place.env(), capture_output=True, text=True, timeout=300,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = {file.name for file in (place.path / "run").iterdir()}
    assert names == {"rank0.ndbg", "rank1.ndbg", "diagnosis.json", "diagnosis-rank1.json"}
    for name in ("d.json", "d-rank1.json"):
        assert json.loads((place.path / name).read_text())["schema"] == "neuraldbg.diagnosis/1"
    assert done.stderr.count("Saved in run \u00b7 ") == 1
    explained = place.tool("explain", "run")
    assert explained.status == 0
    assert "This is rank0.ndbg; the folder also holds rank1.ndbg." in explained.err
    assert "Name a file for another one: run/rank1.ndbg" in explained.err
    other = place.tool("explain", "run/rank1.ndbg")
    assert (other.status, other.err) == (0, "")
    from neuraldbg import Run

    assert [Run.load(place.path / "run" / f"rank{rank}.ndbg").steps for rank in (0, 1)] == [30, 30]


@pytest.mark.long
def test_a_second_run_in_a_folder_says_what_it_is_called(place: Place) -> None:
    first = place.run(source=healthy(20))
    assert "Saved in run \u00b7 " in first.err
    before = (place.path / "run" / "rank0.ndbg").read_bytes()
    second = place.run(source=healthy(25))
    assert "Saved in run/rank0-2.ndbg: the folder already held a run, which was left as it is" in second.err
    assert (place.path / "run" / "rank0.ndbg").read_bytes() == before
    assert (place.path / "run" / "diagnosis-2.json").exists()
    explained = place.tool("explain", "run")
    assert "25 steps" in explained.out
    assert "This is rank0-2.ndbg; the folder also holds rank0.ndbg." in explained.err


def test_a_working_folder_that_was_deleted(place: Place) -> None:
    # MKL ends a process that imports torch there, with or without us: this program imports none, and nor may we.
    script = place.write("train.py", "print('trained')\n")
    gone = place.path / "gone"
    gone.mkdir()
    code = "import os, subprocess, sys; os.rmdir(os.getcwd()); sys.exit(subprocess.call(sys.argv[1:]))"
    for options in ((), ("-o", str(place.path / "run"))):
        gone.mkdir(exist_ok=True)
        command = [sys.executable, "-c", code, *place.command("run", *options, str(script))]
        done = subprocess.run(command, cwd=gone, env=place.env(), capture_output=True, text=True, timeout=180,
                              check=False)  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
        assert done.stderr == "neuraldbg: the working directory was deleted: nothing was recorded\n"
