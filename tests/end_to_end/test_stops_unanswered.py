"""Stops where nobody may be at the keyboard: each is answered from a terminal, or is recorded. None hangs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pexpect
import pytest
from tests.end_to_end.test_debug import PROMPT, TRAIN, Talk, arguments, bare, losses
from tests.families import some

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 120


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN.replace("{inner}", "h"), encoding="utf-8")
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONBREAKPOINT"}
    return {**kept, "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1", **more}


def without(folder: Path, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``neuraldbg debug`` without a terminal: a hang fails by its time."""
    options = {"stdin": subprocess.DEVNULL, "env": environment(), "start_new_session": True, **options}
    command = [sys.executable, *arguments(*args)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=WAIT_S, **options)


def recorded(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run" / "stops.jsonl").read_text(encoding="utf-8").splitlines()]


class Shell:
    """A terminal with a shell in it, as a person has one."""

    def __init__(self, folder: Path) -> None:
        self.child = pexpect.spawn(
            "/bin/bash", ["--norc", "-i"], cwd=str(folder), env=environment(PS1="$ "), encoding="utf-8", timeout=WAIT_S,
            dimensions=(50, 300),
        )  # fmt: skip
        self.child.expect_exact("$ ")

    def type(self, line: str) -> None:
        self.child.sendline(line)

    def until(self, words: str) -> str:
        self.child.expect(words)
        return str(self.child.before).replace("\r", "")


def debug(*args: str) -> str:
    return " ".join([sys.executable, *arguments(*args)])


@pytest.mark.long
def test_numbers_are_recorded_in_place_of_a_stop(folder: Path) -> None:
    done = without(folder, "--breakpoint", "fc2", "--when", "step >= 1", "train.py")
    assert done.returncode == 0
    assert losses(done.stdout) == bare(folder)
    told = re.findall(r"does not stop at step (\d), after layer 'fc2' \(Linear\): there is no terminal", done.stderr)
    assert told == ["1", "2", "3"]
    assert done.stderr.count("Further stops of it are not reported.") == 1
    assert "output: 20 values, 0 NaN or infinite" in done.stderr
    assert "Recorded in run/stops.jsonl" in done.stderr
    rows = recorded(folder)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    for row, before in zip(rows, losses(done.stdout), strict=False):
        assert row["line"] == f"{folder}/train.py:14"
        assert row["loss"] == pytest.approx(float(before))
        assert row["statistics"]["inputs"]["total"] == 80
        assert row["statistics"]["output"]["absmax"] > 0


def test_in_the_background_of_a_terminal_it_goes_on_and_in_the_foreground_it_stops(folder: Path) -> None:
    shell = Shell(folder)
    shell.type(f"{debug('--breakpoint', 'fc2', '--at', '1', 'train.py')} & wait $!; echo status $?")
    text = shell.until(r"status 0\r")
    assert "does not stop at step 1, after layer 'fc2' (Linear): the program runs in the background" in text
    assert losses(text) == bare(folder)
    shell.type("exit")


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    some(["nohup {} > log 2>&1", "{} < /dev/null", "{} <&-", "setsid -w {} > log 2>&1", "{} < train.py > log 2>&1"], 4),
)
def test_no_stop_where_nobody_sits(folder: Path, line: str) -> None:
    shell = Shell(folder)
    shell.type(f"{line.format(debug('--breakpoint', 'fc2', '--at', '1', 'train.py'))}; echo status $?")
    text = shell.until(r"status 0\r")
    log = folder / "log"
    text += log.read_text(encoding="utf-8") if log.exists() else ""
    assert "does not stop at step 1, after layer 'fc2' (Linear): there is no terminal" in text
    assert losses(text) == bare(folder)
    assert [row["step"] for row in recorded(folder)] == [1]
    shell.type("exit")


@pytest.mark.parametrize("line", ["{} > log", "{} 2>&1 | tee log"])
@pytest.mark.long
def test_with_output_to_a_file_the_prompt_is_in_the_terminal(folder: Path, line: str) -> None:
    shell = Shell(folder)
    shell.type(f"{line.format(debug('--breakpoint', 'fc2', '--at', '1', 'train.py'))}; echo status $?")
    assert "NeuralDBG stops: step 1, after layer 'fc2'" in shell.until(PROMPT)
    shell.type("stats")
    assert "output: 20 values" in shell.until(PROMPT)
    shell.type("continue")
    shell.until(r"status 0\r")
    log = (folder / "log").read_text(encoding="utf-8")
    assert losses(log) == bare(folder)
    assert "NeuralDBG stops" not in log
    shell.type("exit")


@pytest.mark.slow
@pytest.mark.parametrize("line", some(["{} < rates", "cat rates | {}"], 2))
def test_input_of_the_script_stays_its_own(folder: Path, line: str) -> None:
    text = (folder / "train.py").read_text(encoding="utf-8")
    text = text.replace(
        "    loss.backward()", "    optimizer.param_groups[0]['lr'] = float(input())\n    loss.backward()"
    )
    (folder / "reads.py").write_text(text, encoding="utf-8")
    (folder / "rates").write_text("0.5\n0.1\n" * 3, encoding="utf-8")
    shell = Shell(folder)
    shell.type(f"{line.format(debug('--before-step', 'reads.py'))}; echo status $?")
    text = ""
    for rate in ("0.5", "0.1") * 3:
        text += shell.until(PROMPT)
        shell.type("p optimizer.param_groups[0]['lr']")
        assert f"\n{rate}\n" in shell.until(PROMPT)
        shell.type("continue")
    text += shell.until(r"status 0\r")
    with (folder / "rates").open(encoding="utf-8") as file:
        own = subprocess.run(
            [sys.executable, "reads.py"], cwd=folder, stdin=file, capture_output=True, text=True, check=True
        )
    assert losses(text) == losses(own.stdout)
    shell.type("exit")


@pytest.mark.slow
def test_one_rank_speaks_and_the_others_record(folder: Path) -> None:
    talk = Talk(folder, "--breakpoint", "fc2", "--at", "1", "train.py", RANK="3", WORLD_SIZE="8")
    talk.child.expect(pexpect.EOF)
    assert "another rank speaks for this one" in " ".join(talk.child.before.split())
    assert losses(talk.child.before.replace("\r", "")) == bare(folder)
    (row,) = map(json.loads, (folder / "run" / "stops-rank3.jsonl").read_text(encoding="utf-8").splitlines())
    assert row["layer"] == "fc2"


@pytest.mark.slow
def test_a_training_in_another_thread_goes_on(folder: Path) -> None:
    text = (folder / "train.py").read_text(encoding="utf-8")
    head, loop = text.split("for _ in range(6):", 1)
    body = "\n".join(f"    {line}" for line in f"for _ in range(6):{loop}".splitlines())
    end = "\nimport threading\nthread = threading.Thread(target=work, daemon=True)\nthread.start()\nthread.join()\n"
    (folder / "thread.py").write_text(f"{head}def work():\n{body}{end}", encoding="utf-8")
    talk = Talk(folder, "--breakpoint", "fc2", "--at", "1", "thread.py")
    talk.child.expect(pexpect.EOF)
    told = talk.child.before.replace("\r", "")
    assert "does not stop at step 1, after layer 'fc2' (Linear): this thread is not the main thread" in told
    assert losses(told) == bare(folder)
    assert [row["step"] for row in recorded(folder)] == [1]


WORKERS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Encoded(Dataset):
    def __init__(self, encoder):
        self.encoder = encoder
    def __len__(self):
        return 8
    def __getitem__(self, i):
        with torch.no_grad():
            return self.encoder(torch.full((4,), float(i)))

def main():
    torch.manual_seed(0)
    encoder, head = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 1)
    model = nn.ModuleDict({"encoder": encoder, "head": head})
    head(encoder(torch.zeros(1, 4)))
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)  # a spawned worker shares the weights of its encoder
    for x in DataLoader(Encoded(encoder), batch_size=2, num_workers=2, multiprocessing_context="HOW"):
        loss = head(encoder(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", repr(loss.item()))

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_a_worker_of_a_data_loader_never_stops(folder: Path, how: str) -> None:
    (folder / "workers.py").write_text(WORKERS.replace("HOW", how), encoding="utf-8")
    talk = Talk(folder, "--breakpoint", "encoder.0", "--at", "0", "workers.py")
    told, stops = "", 0
    while talk.child.expect([PROMPT, pexpect.EOF]) == 0:
        told += talk.child.before
        stops += 1
        talk.child.sendline("continue")
    told = (told + talk.child.before).replace("\r", "")
    assert stops == 2, "the first call, and that of the first step: those of this process"
    assert ("does not stop" in told) == (how == "fork"), "a spawned worker has no session"
    assert losses(told) == bare(folder, "workers.py")
