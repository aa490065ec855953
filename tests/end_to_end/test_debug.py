"""``neuraldbg debug`` in a real terminal: stops, commands, and a training that goes on as if it had not stopped."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from tests.families import some

import neuraldbg

PROMPT = r"\(neuraldbg\) "
TRAIN = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        h = self.drop(self.act(self.fc1(x)))
        return self.fc2({inner})

torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    x, y = torch.randn(5, 8), torch.randint(0, 4, (5,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", repr(loss.item()))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN.replace("{inner}", "h"), encoding="utf-8")
    (tmp_path / "nan.py").write_text(TRAIN.replace("{inner}", "h.log()"), encoding="utf-8")
    return tmp_path


def arguments(*args: str) -> list[str]:
    return ["-m", "neuraldbg", "debug", "-o", "run", *args]


class Talk:
    """A conversation with ``neuraldbg debug`` in a terminal of its own."""

    def __init__(self, folder: Path, *args: str, **more: str) -> None:
        environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1", **more}
        if "PYTHONBREAKPOINT" not in more:
            environment.pop("PYTHONBREAKPOINT", None)
        self.child = pexpect.spawn(
            sys.executable,
            arguments(*args),
            cwd=str(folder),
            env=environment,
            encoding="utf-8",
            timeout=120,
            dimensions=(50, 200),
        )

    def stopped(self) -> str:
        """Return what was printed up to the next prompt."""
        self.child.expect(PROMPT)
        return self.child.before.replace("\r", "")

    def say(self, line: str) -> str:
        self.child.sendline(line)
        return self.stopped().removeprefix(f"{line}\n")

    def end(self, line: str) -> tuple[str, int]:
        """Send the last line; return what is printed to the end, and the exit status."""
        self.child.sendline(line)
        self.child.expect(pexpect.EOF)
        self.child.close()
        return self.child.before.replace("\r", ""), self.child.exitstatus


def losses(text: str) -> list[str]:
    return re.findall(r"loss (\S+)$", text, re.MULTILINE)


def bare(folder: Path, script: str = "train.py") -> list[str]:
    done = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, check=True, timeout=120)
    return losses(done.stdout)


def test_the_birth_of_a_nan_is_found_at_its_layer(folder: Path) -> None:
    talk = Talk(folder, "--break-on", "nan", "nan.py")
    assert "NeuralDBG stops: step 0, before layer 'fc2' (Linear) (a value that is not finite)" in talk.stopped()
    assert re.search(r"inputs: 80 values, \d+ NaN or infinite", talk.say("stats"))
    where = talk.say("where")
    assert "nan.py:14 in forward\n    return self.fc2(h.log())" in where
    assert "neuraldbg" not in where
    assert "torch" not in where
    assert "-> return self.fc2(h.log())" in talk.say("up")
    assert re.search(r"h: 80 values, 0 NaN or infinite, [1-9]\d* zero", talk.say("stats h"))
    text, status = talk.end("quit")
    assert status == 1
    assert "Traceback" not in text


def test_next_and_step_go_from_layer_to_layer(folder: Path) -> None:
    talk = Talk(folder, "train.py")
    assert "step 0, before layer 'fc1' (Linear) (breakpoint)" in talk.stopped()
    for layer in ("act", "drop", "fc2"):
        assert f"step 0, before layer '{layer}'" in talk.say("next")
    assert "step 1, before layer 'fc1'" in talk.say("next")
    assert "step 2, before layer 'fc1'" in talk.say("step")
    text, status = talk.end("continue")
    assert status == 0
    assert losses(text) == bare(folder)[2:]


def test_every_loss_is_the_same_to_the_last_digit(folder: Path) -> None:
    talk = Talk(folder, "--breakpoint", "drop", "train.py")
    printed = talk.stopped()
    for _ in range(5):
        talk.say("__import__('torch').randn(3)")
        printed += talk.say("continue")
    text, status = talk.end("c")
    assert status == 0
    assert losses(printed + text) == bare(folder)
    said = json.loads((folder / "run" / "diagnosis.json").read_text(encoding="utf-8"))
    assert "by hand" not in json.dumps(said)


@pytest.mark.long
def test_values_changed_by_hand_are_noted_in_the_record(folder: Path) -> None:
    talk = Talk(folder, "--breakpoint", "fc2", "--at", "2", "train.py")
    assert "step 2, after layer 'fc2' (Linear) (breakpoint fc2)" in talk.stopped()
    talk.say("_ = output.zero_()")
    text, status = talk.end("continue")
    assert status == 0
    assert losses(text)[0] == repr(1.3862943649291992), "the loss of four equal scores"
    told = subprocess.run(
        [sys.executable, "-m", "neuraldbg", "explain", "run", "-v"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    ).stdout
    assert "output of layer 'fc2' changed by hand at step 2" in " ".join(told.split())


@pytest.mark.long
def test_an_expression_finds_the_variables_of_the_function_that_is_shown(folder: Path) -> None:
    talk = Talk(folder, "--breakpoint", "act", "--at", "1", "train.py")
    talk.stopped()
    assert "torch.Size([5, 8])" in talk.say("p x.shape")
    assert "1: x.mean() > -9 = True" in talk.say("watch x.mean() > -9")
    assert "output: Tensor (5, 16) torch.float32" in talk.say("args")
    talk.child.sendline("step")
    assert "1: x.mean() > -9 = True" in talk.stopped()


@pytest.mark.long
def test_a_crash_after_a_change_by_hand_is_not_blamed_on_the_script(folder: Path) -> None:
    talk = Talk(folder, "--breakpoint", "act", "--at", "2", "train.py")
    talk.stopped()
    talk.say("_ = output.mul_(0.5)")
    text, status = talk.end("continue")
    assert status == 1
    assert "modified by an inplace operation" in text, "autograd keeps the output of a ReLU"
    told = " ".join(text.split())
    assert "At a stop, output of layer 'act' changed by hand at step 2; the result" in told
    diagnosis = json.loads((folder / "run" / "diagnosis.json").read_text(encoding="utf-8"))
    assert next(one["confidence"] for one in diagnosis["hypotheses"] if one["cause"] == "refused_operation") < 0.95


def test_the_names_of_a_stop_and_the_commands(folder: Path) -> None:
    talk = Talk(folder, "--backward", "--breakpoint", "Dense_2", "--when", "step >= 1", "train.py")
    assert "at the gradient of the output of layer 'fc2'" in talk.stopped()
    assert "(5, 4)" in talk.say("tuple(grad.shape)")
    assert "Linear(in_features=16, out_features=4" in talk.say("layer")
    assert "SGD" in talk.say("type(optimizer).__name__")
    assert "True" in talk.say("model.fc2 is layer and dbg is not None and output is None and loss > 0")
    assert "> fc2" in talk.say("layers linear")
    assert "64 values" in talk.say("stats layer.weight")
    assert "layer.weight\n" in talk.say("hist layer.weight")
    assert "  1: step * 2 = 2" in talk.say("watch step * 2")
    assert "no kind of event, cause, failure or layer is called 'fcc'" in talk.say("continue until fcc")
    assert "write `continue`" in talk.say("continue for ever")
    assert "Not at this stop" in talk.say("until 3")
    assert "next: go on, and stop before the next layer." in talk.say("help")
    assert "NameError" in talk.say("stats nothing")
    assert "goes on until layer act" in (text := talk.say("continue until act"))
    assert "step 2, after layer 'act' (ReLU) (until act)" in text
    assert "  1: step * 2 = 4" in text, "a watched expression is shown at each stop"
    assert "INCONCLUSIVE" in talk.say("diagnose")
    assert talk.end("quit")[1] == 1


@pytest.mark.long
def test_the_tensor_of_the_stop_is_meant_in_every_frame(folder: Path) -> None:
    talk = Talk(folder, "--breakpoint", "fc2", "--at", "0", "train.py")
    talk.stopped()
    here = talk.say("stats")
    assert "output: 20 values" in here
    talk.say("up")
    assert "NameError" in talk.say("p output"), "the names of the stop are not those of its callers"
    assert talk.say("stats") == here
    assert "output\n" in talk.say("hist")
    assert talk.end("continue")[1] == 0


@pytest.mark.long
def test_what_has_no_numbers_to_show_says_what_has(folder: Path) -> None:
    talk = Talk(folder, "--breakpoint", "fc2", "--at", "0", "train.py")
    talk.stopped()
    for value, words in {
        "torch.zeros(3, device='meta')": "on the meta device",
        "torch.ones(3).to(torch.complex64)": "it is complex: ask for its abs(), real or imag",
        "torch.eye(4).to_sparse()": "it is sparse or nested: ask for its values()",
        "[torch.zeros(0), 1]": "it has no elements",
        "5": "5 has no tensor",
    }.items():
        assert words in talk.say(f"stats {value}")
        if "no elements" not in words:
            assert words in talk.say(f"hist {value}")
    assert "its dtype is int64: ask for its float()" in talk.say("stats torch.arange(4)")
    assert "no layer has 'gru' in its path, type or alias" in talk.say("layers gru")
    assert "nothing is watched" in talk.say("watch")
    assert "ZeroDivisionError: division by zero" in talk.say("1 / 0")
    assert "'é日本'" in talk.say("p 'é日本'")
    assert talk.end("continue")[1] == 0


@pytest.mark.long
def test_a_stop_before_the_optimizer_has_loss_and_gradients(folder: Path) -> None:
    talk = Talk(folder, "--before-step", "--at", "1", "train.py")
    text = talk.stopped()
    assert "step 1, before step" in text
    seen = talk.say("p loss, model.fc1.weight.grad.shape")
    assert "torch.Size([16, 8])" in seen
    rest, status = talk.end("continue")
    assert status == 0
    shown = re.search(r"\((\S+),", seen)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(float(losses(rest)[0]))


@pytest.mark.long
def test_a_step_restricts_every_stop(folder: Path) -> None:
    talk = Talk(folder, "--step", "--breakpoint", "fc*", "--backward", "--at", "2", "train.py")
    told = talk.stopped()
    for place in ("before layer 'fc1'", "before layer 'fc2'", "gradient of the output of layer 'fc2'"):
        assert f"step 2, {place}" in told.replace("at the gradient", "gradient")
        told = talk.say("c")
    assert "step 2, at the gradient of the output of layer 'fc1'" in told
    assert talk.end("c")[1] == 0


@pytest.mark.long
def test_a_nan_of_the_loss_itself_is_a_stop_with_its_value(folder: Path) -> None:
    text = (folder / "train.py").read_text(encoding="utf-8")
    text = text.replace(
        "    optimizer.zero_grad()", "    loss = (loss - 99).clamp(min=-1).log()\n    optimizer.zero_grad()"
    )
    (folder / "lost.py").write_text(text, encoding="utf-8")
    talk = Talk(folder, "--break-on", "nan", "lost.py")
    assert "step 0, before step (a value that is not finite)" in talk.stopped()
    assert "nan" in talk.say("p loss")
    assert talk.end("continue")[1] == 0, "it stops once"


def test_ctrl_c_leaves_a_line_and_not_the_stop(folder: Path) -> None:
    talk = Talk(folder, "--at", "3", "train.py")
    printed = talk.stopped()
    for typed in ("", "layer.weight.fill_(0"):
        talk.child.send(typed)
        talk.child.sendintr()
        assert "Ctrl-C leaves a line or a command" in talk.stopped()
    talk.child.sendline("print('go' + 'ing', flush=True) or all(True for _ in iter(int, 1))")
    talk.child.expect_exact("going\r\n")  # the echo of the line itself comes before it is run
    talk.child.sendintr()
    assert "KeyboardInterrupt" in talk.stopped()
    text, status = talk.end("continue")
    assert status == 0
    assert losses(printed + text) == bare(folder)


def test_the_prompt_is_at_the_line_of_the_user(folder: Path) -> None:
    talk = Talk(folder, "--breakpoint", "fc2", "--at", "1", "train.py")
    talk.stopped()
    assert "14  ->\t        return self.fc2(h)" in talk.say("list")
    assert "True" in talk.say("p nn.Linear is type(layer)")
    assert talk.end("q")[1] == 1


@pytest.mark.parametrize("close", some([False, True], 2))
def test_a_signal_at_the_prompt_ends_the_run_and_saves_it(folder: Path, close: bool) -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(folder)
        os.execv(sys.executable, [sys.executable, *arguments("--breakpoint", "fc2", "--at", "3", "train.py")])
    seen = b""
    while b"(neuraldbg) " not in seen:
        seen += os.read(terminal, 4096)
    if close:
        os.close(terminal)  # the kernel sends SIGHUP
    else:
        os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(OSError):  # EIO is the end of it
            while os.read(terminal, 4096):
                pass
        os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == (signal.SIGHUP if close else signal.SIGTERM)
    said = json.loads((folder / "run" / "diagnosis.json").read_text(encoding="utf-8"))
    assert "3 steps" in said["summary"]


@pytest.mark.long
def test_quit_ends_a_program_that_swallows_exceptions(folder: Path) -> None:
    text = (folder / "train.py").read_text(encoding="utf-8")
    text = text.replace(
        "    loss = nn.functional.cross_entropy(model(x), y)\n",
        "    try:\n        loss = nn.functional.cross_entropy(model(x), y)\n"
        "    except Exception as error:\n        print('left out:', type(error).__name__)\n        continue\n",
    )
    (folder / "swallows.py").write_text(text, encoding="utf-8")
    talk = Talk(folder, "--breakpoint", "fc2", "swallows.py")
    talk.stopped()
    talk.child.sendline("q")
    talk.child.expect(pexpect.EOF)
    talk.child.close()
    told = talk.child.before
    assert told.count("left out: EndedByHand") == 1
    assert "KeyboardInterrupt" in told
    assert losses(told) == []
    assert talk.child.signalstatus == signal.SIGINT


@pytest.mark.long
def test_quitting_is_no_sign_of_a_fault(folder: Path) -> None:
    talk = Talk(folder, "--at", "4", "train.py")
    talk.stopped()
    text, status = talk.end("quit")
    assert status == 1
    assert "SUSPECT" not in text
    assert "FAILING" not in text


@pytest.mark.long
def test_a_breakpoint_on_a_layer_that_is_not_there_lists_the_nearest(folder: Path) -> None:
    talk = Talk(folder, "--breakpoint", "fc3", "--breakpoint", "fc2", "--at", "5", "train.py")
    text = talk.stopped()
    assert "no layer is called 'fc3'. Did you mean: fc" in " ".join(text.split())
    rest, status = talk.end("c")
    assert status == 0
    assert losses(text + rest) == bare(folder)


def test_without_a_terminal_nothing_stops_and_a_line_says_so(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, *arguments("--breakpoint", "fc1", "--at", "1", "train.py")],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert losses(done.stdout) == bare(folder)
    assert (
        "does not stop at step 1, after layer 'fc1' (Linear): there is no terminal. The training goes on."
        in done.stderr
    )


@pytest.mark.parametrize("option", some(["--each-layer", "--step"], 2))
def test_it_stops_before_each_layer_under_either_name_and_reads_as_much_as_is_asked_for(
    folder: Path, option: str
) -> None:
    done = subprocess.run(
        [sys.executable, *arguments(option, "--at", "1", "--overhead", "full", "train.py")],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert losses(done.stdout) == bare(folder)
    for layer in ("fc1", "act"):
        assert f"does not stop at step 1, before layer '{layer}'" in done.stderr
    cost = neuraldbg.load(folder / "run").info.coverage["cost"]
    assert cost["budget"] is None, "--overhead full"
    assert cost["light_steps"] == 0


@pytest.mark.long
def test_another_debugger_is_entered_where_one_is_set(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "import sys\n"
        "def look():\n"
        "    at = sys._getframe(1).f_locals\n"
        "    print('mine', at['layer_name'], at['step'])\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, *arguments("--breakpoint", "fc1", "--at", "1", "train.py")],
        cwd=folder,
        env={**os.environ, "PYTHONBREAKPOINT": "mine.look", "PYTHONPATH": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "mine fc1 1" in done.stdout
    assert losses(done.stdout) == bare(folder)


@pytest.mark.long
def test_a_debugger_of_the_terminal_that_is_named_is_entered_at_the_line_of_the_user(folder: Path) -> None:
    talk = Talk(
        folder, "--breakpoint", "fc2", "--at", "1", "train.py", PYTHONBREAKPOINT="IPython.core.debugger.set_trace",
        IPYTHONDIR=str(folder / "ipython"),
    )  # fmt: skip
    talk.child.expect("NeuralDBG stops: step 1, after layer 'fc2'")
    talk.child.expect("ipdb> ")
    assert "return self.fc2(h)" in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", talk.child.before)
    talk.child.sendline("p layer_name, step, nn.Linear is type(layer)")
    talk.child.expect("ipdb> ")
    assert "('fc2', 1, True)" in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", talk.child.before)
    text, status = talk.end("continue")
    assert status == 0
    assert losses(text) == bare(folder)[1:]


@pytest.mark.long
def test_quit_in_another_debugger_ends_the_training(folder: Path) -> None:
    talk = Talk(
        folder, "--breakpoint", "fc2", "--at", "1", "train.py", PYTHONBREAKPOINT="IPython.core.debugger.set_trace",
        IPYTHONDIR=str(folder / "ipython"),
    )  # fmt: skip
    talk.child.expect("ipdb> ")
    text, status = talk.end("quit")
    assert status == 1
    assert losses(text) == []
    assert "Traceback" not in text


@pytest.mark.long
def test_a_debugger_that_is_not_installed_is_said_and_ours_is_entered(folder: Path) -> None:
    talk = Talk(folder, "--breakpoint", "fc2", "--at", "1", "train.py", PYTHONBREAKPOINT="nowhere.set_trace")
    text = " ".join(talk.stopped().split())
    assert "PYTHONBREAKPOINT is nowhere.set_trace, which cannot be imported (No module named 'nowhere')" in text
    assert "20 values" in talk.say("stats")
    assert talk.end("continue")[1] == 0


@pytest.mark.long
def test_pause_stops_at_the_line_that_asks_for_it(folder: Path) -> None:
    text = (folder / "train.py").read_text(encoding="utf-8")
    text = text.replace(
        "for _ in range(6):", "from neuraldbg import NeuralDbg\ndbg = NeuralDbg(model)\ndbg.start()\nfor _ in range(6):"
    )
    (folder / "pause.py").write_text(
        text.replace("    print(", "    if _ == 3:\n        dbg.pause()\n    print("), encoding="utf-8"
    )
    talk = Talk(folder, "--at", "1000", "pause.py")
    assert "(dbg.pause())" in talk.stopped()
    assert "dbg.pause()" in talk.say("where")
    talk.say("up")
    assert "3" in talk.say("p _")
    assert talk.end("continue")[1] == 0


@pytest.mark.long
def test_the_conversation_of_the_page_is_what_is_said(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "debug.md").read_text(encoding="utf-8")
    script, _ = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    (told,) = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    first, *rest = told.split("(neuraldbg) ")
    command, _, expected = first.partition("\n")
    talk = Talk(tmp_path, *command.removeprefix("$ neuraldbg debug ").split())
    assert talk.stopped() == expected
    for said in rest[:-1]:
        line, _, expected = said.partition("\n")
        assert talk.say(line).replace(f"{tmp_path}/", "") == expected
    assert rest[-1] == "quit\n"
    assert talk.end("quit")[1] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--break-on", "nonsense"), "no kind of event, cause, failure or layer is called 'nonsense'"),
        (("--when", "los > 1"), "there is no number called 'los'"),
        (("--at", "-1"), "--at"),
        (("--before-step", "--when", "layer.rms > 1"), "needs a moment of a layer"),
        (("--break-on", "loss_spike", "--at", "3"), "leave out --at"),
        (("--overhead", "2"), "is not a share of time"),
        (("--break-on", "fc1"), "A layer is given by --breakpoint."),
        (("--breakpoint", ""), "a pattern of layers is a text"),
    ],
)
def test_what_cannot_be_asked_for_is_said_before_the_program_runs(
    folder: Path, options: tuple[str, ...], words: str
) -> None:
    done = subprocess.run(
        [sys.executable, *arguments(*options, "train.py")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


@pytest.mark.long
def test_calls_of_one_layer_in_a_step_are_told_apart(folder: Path) -> None:
    (folder / "again.py").write_text(
        TRAIN.replace("{inner}", "h").replace("self.drop(self.act(self.fc1(x)))", "self.act(self.act(self.fc1(x)))"),
        encoding="utf-8",
    )
    talk = Talk(folder, "--breakpoint", "act", "--backward", "--step", "--at", "1", "again.py")
    told = talk.stopped()
    for place in (
        "before layer 'act' (ReLU) (",
        "before layer 'act' (ReLU), call 2 (",
        "at the gradient of the output of layer 'act' (ReLU), call 2 (",
        "at the gradient of the output of layer 'act' (ReLU) (",
    ):
        assert f"step 1, {place}" in told
        told = talk.say("c") if "output of layer 'act' (ReLU) (" not in place else ""
    assert talk.end("c")[1] == 0
