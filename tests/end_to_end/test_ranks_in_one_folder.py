"""Several runs and several ranks in one folder: each keeps its own file and diagnosis, and says what it is called."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.end_to_end.place import DATA, HEAD, MODEL, TRAIN, Place, healthy
from tests.guest.rank_environment import free_port

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
    beside = {"diagnosis.json", "diagnosis-rank1.json", "diagnosis-job.json"}
    assert names == {"rank0.ndbg", "rank1.ndbg", *beside}
    for name in ("d.json", "d-rank1.json"):
        assert json.loads((place.path / name).read_text())["schema"] == "neuraldbg.diagnosis/1"
    assert done.stderr.count("Saved in run \u00b7 ") == 1
    assert "Weights were equal on the 2 ranks in all 7 steps" in " ".join(done.stderr.split())
    assert len(json.loads((place.path / "d.json").read_text())["ranks"]) == 2
    explained = place.tool("explain", "run")
    assert (explained.status, explained.err) == (0, "")
    assert "Weights were equal on the 2 ranks" in " ".join(explained.out.split())
    other = place.tool("explain", "run/rank1.ndbg")
    assert (other.status, other.err) == (0, "")
    from neuraldbg import Run

    assert [Run.load(place.path / "run" / f"rank{rank}.ndbg").steps for rank in (0, 1)] == [30, 30]


LAUNCHERS = {
    "torchrun": ["torchrun", "--standalone", "--nproc-per-node=2", "train.py", "--steps", "30"],
    "module": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py", "--steps", "30"],
    "of_a_module": ["torchrun", "--standalone", "--nproc-per-node=2", "-m", "train", "--steps", "30"],
}


SAYS = """
import sys
os.write(1, f"{dist.is_initialized()} {sys.argv[1:]}\\n".encode())  # at once: two processes write
"""


@pytest.mark.parametrize("name", [*LAUNCHERS][:1] + [pytest.param(n, marks=pytest.mark.slow) for n in [*LAUNCHERS][1:]])
def test_a_launcher_hands_the_tool_on_to_its_workers(name: str, place: Place) -> None:
    place.write("train.py", RANKS + SAYS)
    done = place.tool("run", "-o", "run", "--json", "d.json", *LAUNCHERS[name])
    assert done.status == 0, done.err
    assert done.out.count("False ['--steps', '30']\n") == 2
    assert {file.name for file in (place.path / "run").glob("*.ndbg")} == {"rank0.ndbg", "rank1.ndbg"}
    told = json.loads((place.path / "d.json").read_text())
    assert [one["steps"] for one in told["ranks"]] == [30, 30]


def test_a_launcher_of_other_programs_is_refused(place: Place) -> None:
    done = place.tool("run", "torchrun", "--nproc-per-node=2", "--no-python", "./train.sh")
    assert done.status == 2
    assert "torchrun --no-python neuraldbg run train.py" in done.err


def test_workers_that_are_started_again_continue_the_record(place: Place) -> None:
    # Without a process group: whether gloo's ranks find each other again is torch's own matter.
    crash = "    step = globals().get('step', -1) + 1\n"
    crash += "    if step == 12 and os.environ['RANK'] == '1' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
    crash += "        raise RuntimeError('the node is gone')\n"
    train = TRAIN.format(steps=30).replace("    opt.zero_grad()\n", crash + "    opt.zero_grad()\n", 1)
    assert crash in train
    place.write("train.py", HEAD + "import os\n" + DATA + MODEL + train)
    launcher = ["torchrun", "--standalone", "--nproc-per-node=2", "--max-restarts=1", "train.py"]
    done = place.tool("run", "-o", "run", *launcher)
    assert done.status == 0, done.err
    names = {file.name for file in (place.path / "run").glob("*.ndbg")}
    assert names == {"rank0.ndbg", "rank1.ndbg", "rank0-2.ndbg", "rank1-2.ndbg"}
    explained = " ".join(place.tool("explain", "run").out.split())
    assert "started the workers again once: attempt 1 ended on rank 1 after 12 steps" in explained
    assert "the node is gone" in explained


SPAWN = """
import torch.distributed as dist
import torch.multiprocessing as mp

def train(rank, world, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    torch.manual_seed(rank)
    net = nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for a, b in batches(30):
        opt.zero_grad()
        if rank == 1 and opt.state and next(iter(opt.state.values()))["step"] == 20:
            a[3, 5] = float("nan")
        F.cross_entropy(net(a), b).backward()
        opt.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, args=(2, PORT), nprocs=2)
    print("trained")
"""


def test_spawned_processes_are_watched(place: Place) -> None:
    done = place.run(source=HEAD + DATA + MODEL + SPAWN.replace("PORT", str(free_port())))
    assert (done.status, done.out) == (0, "trained\n"), done.err
    said = " ".join(done.err.split())
    assert "On rank 1 of 2, the loss became NaN at step 20." in said
    assert "It reached rank 0 in the averaged gradients of step 20." in said
    assert "Saved in run See it with: neuraldbg report run" in said


HELPERS = """
import os
import torch.multiprocessing as mp

def prepare(rank, folder):
    open(f"{folder}/{rank}.txt", "w").write(str("NEURALDBG_SPAWNED" in os.environ))

if __name__ == "__main__":
    mp.spawn(prepare, args=(".",), nprocs=2)
"""


@pytest.mark.slow
def test_spawned_processes_that_do_not_train_leave_no_file(place: Place) -> None:
    train = "\n".join("    " + line for line in (TRAIN.format(steps=30)).splitlines())
    done = place.run(source=HEAD + DATA + MODEL + HELPERS + train)
    assert done.status == 0, done.err
    assert {(place.path / f"{rank}.txt").read_text() for rank in range(2)} == {"False"}
    assert {file.name for file in (place.path / "run").iterdir()} == {"rank0.ndbg", "diagnosis.json"}
    assert "No known problem found in 30 steps" in done.err


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
