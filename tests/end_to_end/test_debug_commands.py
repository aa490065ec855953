"""The lines that are typed at a stop of ``neuraldbg debug``: commands do what they say, and all else is Python."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

import pexpect
import pytest
from tests.end_to_end.test_debug import TRAIN, Talk, arguments, bare, losses

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def train(tmp_path: Path) -> None:
    text = TRAIN.replace("{inner}", "h")
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    (tmp_path / "reads.py").write_text(
        text.replace("for _ in range(6):", "for line in sys.stdin:")
        + "    print('read', line.strip())\nprint('left', hasattr(sys, 'ps1'), hasattr(sys, 'last_value'))\n",
        encoding="utf-8",
    )


def test_step_goes_to_the_next_step_also_from_between_two(tmp_path: Path) -> None:
    talk = Talk(tmp_path, "--when", "step == 2", "train.py")
    assert "step 2, after step (" in talk.stopped()
    assert "step 3, before layer 'fc1'" in talk.say("step")
    assert "step 4, before layer 'fc1'" in talk.say("step")
    text, status = talk.end("continue")
    assert status == 0
    assert "never ran" not in text


@pytest.mark.long
def test_what_the_debugger_sets_for_itself_is_not_missed_at_the_end(tmp_path: Path) -> None:
    talk = Talk(tmp_path, "--when", "step == 0", "train.py")
    talk.stopped()
    text, status = talk.end("quit")
    assert status == 1
    assert "never ran" not in text
    talk = Talk(tmp_path, "--breakpoint", "fc2", "--at", "5", "train.py")
    talk.stopped()
    text, status = talk.end("step")
    assert status == 0
    assert "never ran" not in text


@pytest.mark.long
def test_a_line_of_python_that_begins_as_a_command_does_stays_at_the_stop(tmp_path: Path) -> None:
    talk = Talk(tmp_path, "--breakpoint", "fc2", "--at", "2", "train.py")
    talk.stopped()
    for line, shown in {
        "step == 2": "True\n",
        "step, 1": "(2, 1)\n",
        "next(iter([4, 5]))": "4\n",
        "step.bit_length()": "2\n",
        "list((1, 2))": "[1, 2]\n",
        "layers = [7, 8]": "",
        "layers[1]": "8\n",
        "where = 5": "",
        "where + 1": "6\n",
        "p = 3": "",
        "p == 3": "True\n",
        "p p": "3\n",
        "p -p": "-3\n",
        "p(p)": "3\n",
        "p step": "2\n",
        "p [step]": "[2]\n",
        "step += 1": "",
        "p  step": "3\n",
        "step 3": "*** `step` takes no argument; `p step` shows a variable of that name\n",
        "step(3)": "*** TypeError: 'int' object is not callable\n",
        "next 2": "*** `next` takes no argument; `p next` shows a variable of that name\n",
        "n(2)": "*** `n` takes no argument; `p n` shows a variable of that name\n",
        "quit now": "*** `quit` takes no argument; `p quit` shows a variable of that name\n",
    }.items():
        assert talk.say(line) == shown, line
    assert "20 values" in talk.say("stats (output)")
    assert "20 values" in talk.say("stats(output)")
    assert "20 values" in talk.say("stats -output")
    assert "> fc2" in talk.say("layers linear")
    talk.say("up")
    assert talk.say("h.shape") == "torch.Size([5, 16])\n", "and not the help on .shape"
    assert talk.end("quit()")[1] == 1


@pytest.mark.long
def test_interact_reads_from_the_person_and_leaves_the_input_of_the_script_alone(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("print('executed')\n" * 6, encoding="utf-8")
    command = f"exec {shlex.join([sys.executable, *arguments('--breakpoint', 'fc2', '--at', '1', 'reads.py')])}"
    talk = Talk.__new__(Talk)
    talk.child = pexpect.spawn(
        "/bin/sh",
        ["-c", f"{command} < data.txt"],
        cwd=str(tmp_path),
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1", "PYTHONBREAKPOINT": ""},
        encoding="utf-8",
        timeout=120,
        dimensions=(50, 200),
    )
    printed = talk.stopped()

    def ask(line: str) -> str:
        talk.child.sendline(line)
        talk.child.expect(r"(>>>|\.\.\.) ")
        return str(talk.child.before).replace("\r", "").removeprefix(f"{line}\n")

    for leave in ("exit()", "raise SystemExit", "\x04"):
        assert "Ctrl-D goes back to the prompt" in ask("interact")
        assert ask("layer_name, tuple(output.shape)") == "('fc2', (5, 4))\n"
        assert ask("for n in (1, 2):") == ask("    print('twice', n * 21)") == ""
        assert ask("") == "twice 21\ntwice 42\n"
        assert "ZeroDivisionError: division by zero" in ask("1 / 0")
        assert "SyntaxError" in ask("1 +* 2")
        talk.child.sendintr()
        talk.child.expect("KeyboardInterrupt")
        talk.child.expect(">>> ")
        if leave == "\x04":
            talk.child.send(leave)
            talk.stopped()
        else:
            talk.say(leave)
        assert talk.say("p step") == "1\n"
    text, status = talk.end("continue")
    printed += text
    assert status == 0
    assert printed.count("read print('executed')") == 6
    assert "\nexecuted" not in printed
    assert "left False False" in printed
    assert losses(printed) == bare(tmp_path)
