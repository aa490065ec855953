"""The end of a training under ``neuraldbg debug``: no prompt after it, and none in a signal handler."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pexpect
import pytest
from tests.end_to_end.test_debug import PROMPT, Talk
from tests.families import some

if TYPE_CHECKING:
    from pathlib import Path

SOFTMAX = """
import os, signal, time
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Softmax(-1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range({steps}):
    x, y = torch.randn(16, 8), torch.randint(0, 4, (16,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
print("the last line", flush=True)
{after}
"""
ENDS = {
    "": 0,
    "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)": -signal.SIGTERM,
    "raise KeyboardInterrupt": -signal.SIGINT,
}


def written(folder: Path, *, steps: int = 3, after: str = "") -> Path:
    (folder / "softmax.py").write_text(SOFTMAX.format(steps=steps, after=after), encoding="utf-8")
    return folder


def rest(talk: Talk) -> tuple[str, int]:
    """Return what is printed to the end without any prompt, and the exit status, negative for a signal."""
    assert talk.child.expect([pexpect.EOF, PROMPT]) == 0, "a prompt after the end"
    talk.child.close()
    status = talk.child.exitstatus
    return talk.child.before.replace("\r", ""), -talk.child.signalstatus if status is None else status


@pytest.mark.parametrize("after", some(ENDS, 3))
def test_a_cause_that_is_credible_at_the_end_alone_is_told_and_opens_no_prompt(tmp_path: Path, after: str) -> None:
    talk = Talk(written(tmp_path, after=after), "--break-on", "double_softmax", "softmax.py")
    text, status = rest(talk)
    assert "the last line" in text
    assert "'double_softmax' does not stop at step 2: it was seen as the run ended." in " ".join(text.split())
    assert "the diagnosis failed" not in text
    assert status == ENDS[after]
    said = json.loads((tmp_path / "run" / "diagnosis.json").read_text(encoding="utf-8"))
    assert said["hypotheses"][0]["cause"] == "double_softmax"


def test_a_cause_that_is_credible_in_time_stops(tmp_path: Path) -> None:
    talk = Talk(written(tmp_path, steps=12), "--break-on", "double_softmax", "softmax.py")
    told = talk.stopped()
    assert "(double_softmax: " in told
    assert "the last line" not in told
    assert talk.end("continue")[1] == 0


@pytest.mark.long
def test_quit_asks_nothing_more(tmp_path: Path) -> None:
    """The diagnosis that ``quit`` makes names the cause for the first time."""
    script = SOFTMAX.format(steps=3, after="").replace(
        "for _ in",
        "from neuraldbg import NeuralDbg\ndbg = NeuralDbg(model)\ndbg.add_breakpoint('double_softmax')\n"
        "dbg.start()\nfor _ in",
    )
    (tmp_path / "own.py").write_text(script.replace("optimizer.step()", "optimizer.step()\n    _ == 2 and dbg.pause()"))
    talk = Talk(tmp_path, "--at", "1000", "own.py")
    assert "(dbg.pause())" in talk.stopped()
    talk.child.sendline("quit")
    text, status = rest(talk)
    assert "'double_softmax' does not stop at step" in text
    assert status == 1
    assert "Traceback" not in text


@pytest.mark.long
def test_a_function_is_called_at_the_end_and_may_halt_without_harm(tmp_path: Path) -> None:
    script = SOFTMAX.format(steps=3, after="").replace(
        "optimizer = ",
        "from neuraldbg import NeuralDbg, TrainingHalted\n"
        "def told(what):\n    print('told', what.cause, flush=True)\n    raise TrainingHalted('too late', 2)\n"
        "dbg = NeuralDbg(model)\ndbg.add_breakpoint('double_softmax', told)\n"
        "dbg.start()\noptimizer = ",
    )
    script += "dbg.stop()\nprint(dbg.diagnose().verdict)\ndbg.pause()\n"
    (tmp_path / "own.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.splitlines() == ["the last line", "told double_softmax", "suspect"]
    assert "'dbg.pause()' does not stop at step 2, after step: the session has ended." in done.stderr


@pytest.mark.long
def test_a_signal_at_a_stop_of_another_debugger_ends_the_run_and_saves_it(tmp_path: Path) -> None:
    (written(tmp_path) / "holds.py").write_text(
        "import os, signal, threading, time\n"
        "def set_trace():\n"
        "    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"
        "    until = time.monotonic() + 20\n"
        "    while time.monotonic() < until:\n"
        "        time.sleep(0.05)\n"
        "    print('left the stop', flush=True)\n",
        encoding="utf-8",
    )
    talk = Talk(
        tmp_path, "--breakpoint", "0", "--at", "1", "softmax.py",
        PYTHONBREAKPOINT="holds.set_trace", PYTHONPATH=str(tmp_path),
    )  # fmt: skip
    text, status = rest(talk)
    assert "NeuralDBG stops: step 1, after layer '0'" in text
    assert "left the stop" not in text
    assert status == -signal.SIGTERM
    assert (tmp_path / "run" / "diagnosis.json").exists()
