"""SIGTERM and SIGHUP: the run is saved and diagnosed, and the process dies as it does without us."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.families import some

from neuraldbg import Run
from neuraldbg.runner import termination

if TYPE_CHECKING:
    from tests.end_to_end.place import Place

pytestmark = pytest.mark.skipif(termination._signals is None, reason="_signals is not built")

HEAD = """
import atexit, os, queue, signal, sys, threading, time
import torch
from torch import nn

def go():
    print("go", file=sys.stderr, flush=True)

print([signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)], flush=True)
atexit.register(print, "exit handler")
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
"""
CHAINED = """
before = signal.getsignal(signal.SIGTERM)

def chained(number, frame):
    print("mine", flush=True)
    assert not callable(before)
    signal.signal(number, before)
    os.kill(os.getpid(), number)

signal.signal(signal.SIGTERM, chained)
"""
DEFAULT = "[<Handlers.SIG_DFL: 0>, <Handlers.SIG_DFL: 0>]\n"
FOR_EVER = "train(20)\ngo()\ntry:\n    while True:\n        train(1)\nfinally:\n    print('finally')\n"


def ended(
    place: Place, source: str, number: int = signal.SIGTERM, *, again: float = 0.0, pause: float = 0.05
) -> tuple[int, str, str, float]:
    """Send a signal when the program says go. Returns status, output, errors after that, and the seconds it took."""
    place.write("train.py", HEAD + source)
    command = [sys.executable, "-m", "neuraldbg", "run", "-o", "run", "train.py"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen(command, cwd=place.path, env=place.env(), text=True, bufsize=1, **pipes)
    try:
        for line in child.stderr:
            if line == "go\n":
                break
        else:
            pytest.fail(f"it ended with status {child.wait()}")
        time.sleep(pause)
        child.send_signal(number)
        began = time.monotonic()
        if again:
            time.sleep(again)
            child.send_signal(number)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    return child.returncode, out, err, time.monotonic() - began


def kept(place: Place) -> dict:
    return json.loads((place.path / "run/diagnosis.json").read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_is_diagnosed_and_saved_and_dies_by_the_signal(place: Place, number: int) -> None:
    status, out, err, _ = ended(place, FOR_EVER, number)
    assert status == -number
    assert out == DEFAULT, "as bare: SIG_DFL to who asks, no `finally`, no exit handler"
    assert "Saved in run" in err
    run = Run.load(place.path / "run")
    assert run.info.outcome.kind == "interrupted"
    assert run.info.outcome.message == f"ended by {signal.Signals(number).name}"
    assert run.info.outcome.where.startswith("train.py:")
    assert kept(place)["run"]["steps"] == run.steps >= 20


@pytest.mark.parametrize(
    "waits",
    some(
        [
            "time.sleep(100)",
            "queue.Queue().get()",
            "thread = threading.Thread(target=train, args=(10**9,), daemon=True); thread.start(); thread.join()",
        ],
        3,
    ),
)
def test_while_the_program_waits(place: Place, waits: str) -> None:
    status, out, err, seconds = ended(place, f"train(20)\ngo()\n{waits}\n")
    assert (status, out) == (-signal.SIGTERM, DEFAULT)
    assert "Saved in run" in err
    assert seconds < termination.STUCK_S


@pytest.mark.slow
def test_at_any_moment(place: Place) -> None:
    """In the middle of a hook, a lock of ours, a light step or a closing one."""
    chance = random.Random(28)
    for _ in range(10):
        status, _, err, _ = ended(place, FOR_EVER, pause=chance.uniform(0, 0.5))
        assert status == -signal.SIGTERM
        assert "Saved in run" in err
        assert kept(place)["run"]["coverage"]["errors"] == 0
        for file in (place.path / "run").iterdir():
            file.unlink()


@pytest.mark.parametrize(
    ("handler", "status", "said"),
    some(
        [
            ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))", 7, "exit handler\n"),
            ("print(signal.signal(signal.SIGTERM, signal.SIG_IGN))\nlater = 0.5", 0, "0\nafter\nexit handler\n"),
            (
                CHAINED,
                -signal.SIGTERM,
                "mine\n",
            ),
        ],
        3,
    ),
)
def test_a_handler_of_the_programs_stays_in_force(place: Place, handler: str, status: int, said: str) -> None:
    waits = "end = time.monotonic() + globals().get('later', 60)\nwhile time.monotonic() < end: train(1)\n"
    found, out, err, _ = ended(place, f"{handler}\ntrain(20)\ngo()\n{waits}print('after')\n")
    said = said.replace("0\nafter", "Handlers.SIG_DFL\nafter") if sys.version_info < (3, 11) else said
    assert (found, out) == (status, DEFAULT + said)
    assert ("Saved in run" in err) == (status >= 0), "who restores the default and dies by it has the run file alone"
    assert Run.load(place.path / "run").info.outcome.kind in ("running", "completed", "raised")


@pytest.mark.long
def test_the_handler_of_an_event_loop(place: Place) -> None:
    source = """
import asyncio

async def serve():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    train(5)
    go()
    await stop.wait()
    print("stopped")

asyncio.run(serve())
"""
    status, out, err, _ = ended(place, source)
    assert (status, out) == (0, DEFAULT + "stopped\nexit handler\n")
    assert "Saved in run" in err


@pytest.mark.long
def test_who_ignores_it_is_not_asked(place: Place) -> None:
    """As under ``nohup``."""
    place.write("train.py", HEAD + "os.kill(os.getpid(), signal.SIGHUP)\ntrain(5)\n")
    code = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        "os.execv(sys.executable, [sys.executable, '-m', 'neuraldbg', 'run', '-o', 'run', 'train.py'])"
    )
    done = place.python("-c", code)
    assert done.status == 0
    assert kept(place)["run"]["steps"] == 5


@pytest.mark.long
def test_children_die_of_it_as_ever(place: Place) -> None:
    """A forked child, a worker of a data loader, and a process of another program: without a word, at once."""
    source = """
import multiprocessing, subprocess
from torch.utils.data import DataLoader

train(10)
child = os.fork()
if child == 0:
    while True:
        time.sleep(0.01)
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
process.start()
time.sleep(0.3)
os.kill(child, signal.SIGTERM)
print(os.WTERMSIG(os.waitpid(child, 0)[1]))
other.terminate()
process.terminate()
process.join()
print(other.wait(), process.exitcode)
loader = DataLoader(torch.randn(8, 4), num_workers=1, multiprocessing_context="fork", persistent_workers=True)
batches = iter(loader)
next(batches)
try:
    os.kill(batches._workers[0].pid, signal.SIGTERM)
    for _ in range(100):
        time.sleep(0.05)
    print("nobody noticed")
except RuntimeError as error:
    print(str(error).replace(str(batches._workers[0].pid), "PID"))
train(10)
"""
    place.write("train.py", HEAD + source)
    bare = place.python("train.py")
    watched = place.run("train.py")
    assert (watched.status, watched.out) == (bare.status, bare.out)
    assert watched.out.splitlines()[1:3] == ["15", "-15 -15"]
    assert watched.err.count("The run") + watched.err.count("No problem") <= 1
    assert watched.diagnosis["run"]["steps"] == 20


def test_the_second_time_it_is_at_once(place: Place) -> None:
    slow = "import neuraldbg.explain\nneuraldbg.explain.diagnose = lambda run: time.sleep(60)\n"
    status, _, err, seconds = ended(place, slow + FOR_EVER, again=1.0)
    assert (status, err) == (-signal.SIGTERM, "")
    assert seconds < 10
    assert Run.load(place.path / "run").steps >= 20


def test_without_torch_there_is_nothing_to_wait_for(place: Place) -> None:
    place.write("train.py", "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n")
    done = place.run("train.py")
    assert (done.status, done.out, done.err) == (-signal.SIGTERM, "", "")


def test_a_program_that_comes_to_no_instruction_is_not_waited_for(place: Place) -> None:
    """A collective that hangs holds the main thread in C: no handler of Python's would ever be called."""
    place.write(
        "stuck.py",
        "import hashlib, signal, sys, threading, time\n"
        "from neuraldbg.runner import _signals\n"
        "signal.signal(signal.SIGRTMAX, print)\n"
        "assert _signals.arm(signal.SIGTERM, signal.SIGRTMAX, 1)\n"
        "assert not _signals.arm(signal.SIGTERM, signal.SIGRTMAX, 1)\n"
        "signal.signal(signal.SIGALRM, print)\n"
        "sys.stderr.write('go\\n')\n"
        "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)\n",
    )
    child = subprocess.Popen(
        [sys.executable, "stuck.py"], cwd=place.path, env=place.env(), stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stderr.readline() == b"go\n"
    time.sleep(0.2)
    child.terminate()
    began = time.monotonic()
    assert child.communicate(timeout=30)[0] == b""
    assert child.returncode == -signal.SIGTERM
    assert 0.5 < time.monotonic() - began < 10


@pytest.mark.long
def test_in_the_last_diagnosis_it_is_waited_for(place: Place) -> None:
    """The program is over: whoever sends it then gets the run that he waited for, and a process that died of it."""
    slow = (
        "import neuraldbg.explain\n"
        "real = neuraldbg.explain.diagnose\n"
        "neuraldbg.explain.diagnose = lambda run: (go(), time.sleep(1.0), real(run))[2]\n"
        "atexit._clear()\n"
    )
    status, out, err, _ = ended(place, slow + "train(20)\n")
    assert (status, out) == (-signal.SIGTERM, DEFAULT)
    assert "Saved in run" in err
    assert kept(place)["run"]["steps"] == 20
    assert Run.load(place.path / "run").info.outcome.kind == "completed"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
@pytest.mark.long
def test_a_terminal_that_is_closed(place: Place) -> None:
    place.write("train.py", HEAD + FOR_EVER)
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "neuraldbg", "run", "-o", "run", "train.py"]
    code = f"import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv({command[0]!r}, {command!r})"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=place.path, env=place.env(), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    deadline = time.monotonic() + 60
    while b"go" not in said and time.monotonic() < deadline:
        if select.select([ours], [], [], 1.0)[0]:
            said += os.read(ours, 4096)
    time.sleep(0.2)
    os.close(ours)
    assert child.wait(60) == -signal.SIGHUP
    assert kept(place)["run"]["steps"] >= 20
