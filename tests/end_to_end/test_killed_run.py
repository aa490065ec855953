"""kill -9 in the middle of a run: what is left can be explained, and covers all but the last second."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from tests.end_to_end.place import MODEL, Place, script

ENDLESS = script(
    MODEL,
    """
import time
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
step = 0
while True:
    for a, b in batches(1000):
        opt.zero_grad()
        F.cross_entropy(model(a), b).backward()
        opt.step()
        print(step, time.time(), flush=True)
        step += 1
        time.sleep(0.004)
""",
)


def started(place: Place) -> subprocess.Popen[str]:
    return subprocess.Popen(
        place.command("run", "-o", "run", "train.py"),
        cwd=place.path,
        env=place.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_is_left_can_be_explained(place: Place, number: int) -> None:
    place.write("train.py", ENDLESS)
    process = started(place)
    assert process.stdout is not None
    lines = []
    try:
        began = None
        for line in process.stdout:
            lines.append(line)
            began = began or time.monotonic()
            if time.monotonic() - began > 4 and len(lines) > 100:
                break
        os.kill(process.pid, number)
        killed = time.time()
        lines += process.stdout.readlines()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    times = {int(step): float(at) for step, at in (line.split() for line in lines if line.endswith("\n"))}
    due = max(step for step, at in times.items() if at < killed - 1.0)
    assert due > 50

    done = place.tool("explain", "run", "--json", "-")
    assert done.status == 0, done.err
    from neuraldbg import Run

    run = Run.load(place.path / "run")
    assert run.steps - 1 >= due
    assert run.history.steps.tolist()[-1] == run.steps - 1
    assert len(run.scalar("loss")) == run.steps
    assert run.info.models == ("model",)
    assert run.info.optimizers == ("Adam",)
    diagnosis = run.diagnose()
    assert diagnosis.verdict in ("healthy", "suspect")
    shown = place.tool("explain", "run")
    assert shown.status == 0, shown.err
    assert diagnosis.verdict in shown.out.lower()


def test_a_run_can_be_explained_while_it_goes_on(place: Place) -> None:
    place.write("train.py", ENDLESS)
    process = subprocess.Popen(
        place.command("run", "-o", "run", "train.py"),
        cwd=place.path,
        env=place.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if int(line.split()[0]) == 200:
                break
        done = place.tool("explain", "run")
        assert done.status == 0, done.err
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    # The end is that of `python train.py` after Ctrl-C, and the diagnosis is printed all the same.
    assert process.returncode in (130, -signal.SIGINT)
    assert "KeyboardInterrupt" in err
    assert "Saved in run" in err


HANGING = script(
    MODEL,
    """
import time
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for step, (a, b) in enumerate(batches(9)):
    opt.zero_grad()
    F.cross_entropy(model(a), b).backward()
    opt.step()
    if step < 2:
        time.sleep(0.5)  # slow steps, then a burst, then nothing more
print("hangs", flush=True)
time.sleep(60)
""",
)


@pytest.mark.slow
def test_what_was_done_before_a_hang_is_there(place: Place) -> None:
    place.write("train.py", HANGING)
    process = started(place)
    assert process.stdout is not None
    try:
        assert "hangs" in process.stdout.readline()
        time.sleep(1.5)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    from neuraldbg import Run

    assert Run.load(place.path / "run").steps == 9
