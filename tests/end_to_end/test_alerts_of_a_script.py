"""Alerts, halts and thresholds of ``neuraldbg run``, with real scripts, a real web server, and a killed process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.alerts.loopback_server import served
from tests.end_to_end.place import MODEL, TRAIN, Place, script
from tests.families import some

import neuraldbg

if TYPE_CHECKING:
    from pathlib import Path

BROKEN = script(
    MODEL,
    """
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (a, b) in enumerate(batches(40)):
        opt.zero_grad()
        loss = F.cross_entropy(model(a), b) * (float("nan") if step == 12 else 1.0)
        loss.backward()
        opt.step()
    print("the script has ended")
    """,
)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_nan_is_told_by_every_way_and_the_script_does_not_notice(place: Place) -> None:
    place.write("train.py", BROKEN)
    with served() as hook:
        done = place.tool(
            "run", "-o", "run", "--alert-on-nan", "--alert", "info:loss > 0", "--alert-file", "alerts.jsonl",
            "--alert-command", "sh -c 'cat >> by_command.jsonl'", "--alert-webhook", hook.url, "train.py",
        )  # fmt: skip
    assert (done.status, done.out) == (0, "the script has ended\n")
    told = lines(place.path / "alerts.jsonl")
    assert {one["text"] for one in lines(place.path / "by_command.jsonl")} == {one["text"] for one in told}
    assert {one["text"] for one in hook.got} == {one["text"] for one in told}
    nan = next(one for one in told if one["subject"] == "nonfinite_loss")
    assert (nan["severity"], nan["step"], nan["value"], nan["script"]) == ("critical", 12, "NaN", "train.py")
    assert nan["run"] == str(place.path / "run")
    printed = [line for line in done.err.splitlines() if line.startswith("neuraldbg: ")]
    assert "neuraldbg: CRITICAL [nan] nonfinite loss at step 12 (loss NaN)" in printed
    assert printed[0].startswith("neuraldbg: INFO [loss > 0] loss > 0 (loss = ")
    first, last = [one for one in told if one["rule"] == "loss > 0"]
    assert (first["held_back"], first["step"]) == (0, 0)
    assert last["held_back"] + 1 + 1 == sum(one.loss is not None and one.loss > 0 for one in steps(place.path / "run"))
    assert [alert.text for alert in neuraldbg.load(place.path / "run").alerts] == [one["text"] for one in told]


class Loss:
    def __init__(self, loss: float | None) -> None:
        self.loss = loss


def steps(run: Path) -> list[Loss]:
    return [Loss(value) for value in neuraldbg.load(run).scalar("loss").values.tolist()]


def test_a_halt_leaves_the_weights_good_and_its_exit_status_is_one(place: Place) -> None:
    at_exit = "import atexit\natexit.register(lambda: print(all(p.isfinite().all() for p in model.parameters())))\n"
    source = BROKEN.replace("print(", "raise SystemExit(9)\nprint(")
    place.write("train.py", source.replace("opt = ", f"{at_exit}opt = "))
    done = place.tool("run", "-o", "run", "--halt", "--alert-on-nan", "train.py")
    assert done.status == 1
    assert done.out == "True\n"
    assert "TrainingHalted: training halted before step 12 was applied: the loss is nan" in done.err
    assert "neuraldbg: CRITICAL [halt] the training is halted before step 12 is applied: the loss is nan" in done.err
    assert neuraldbg.load(place.path / "run").info.outcome.kind == "halted"
    plain = place.tool("run", "-o", "plain", "train.py")
    assert plain.status == 9, "without --halt it goes on to its own end"


@pytest.mark.slow
@pytest.mark.parametrize("answer", some(["hang", 500, "drop", "307 http://localhost:9/"], 2))
def test_a_webhook_that_does_not_work_is_reported_once_and_delays_no_step(place: Place, answer: int | str) -> None:
    place.write("train.py", script("import time\n", MODEL, TRAIN.format(steps=60), "print('ended')\n"))
    with served(answer) as hook:
        done = place.tool(
            "run", "-o", "run", "--alert", "loss > 0", "--alert-every", "0", "--alert-webhook", hook.url, "train.py"
        )
    assert (done.status, done.out) == (0, "ended\n")
    assert done.err.count(f"neuraldbg: an alert did not reach the webhook at {hook.url.removesuffix('/alerts')}") == 1
    assert hook.got == []
    assert "Traceback" not in done.err
    run = neuraldbg.load(place.path / "run")
    assert run.steps == 60
    assert max(run.scalar("duration").values) < 5.0, "a step that waited would have taken the time limit of a request"
    assert len(run.alerts) == 60


@pytest.mark.slow
@pytest.mark.parametrize("command", ["false", "sleep 600"])
def test_a_command_that_fails_or_hangs_is_reported_once_and_nothing_is_left(place: Place, command: str) -> None:
    place.write("train.py", BROKEN)
    done = place.tool("run", "-o", "run", "--alert-on-nan", "--alert-command", command, "train.py")
    assert (done.status, done.out) == (0, "the script has ended\n")
    assert done.err.count(f"neuraldbg: an alert did not reach the command '{command.split(maxsplit=1)[0]}': ") == 1


ENDLESS = script(
    MODEL,
    """
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        for a, b in batches(100):
            opt.zero_grad()
            F.cross_entropy(model(a), b).backward()
            opt.step()
    """,
)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_leaves_whole_lines(place: Place, number: int) -> None:
    place.write("train.py", ENDLESS)
    file = place.path / "alerts.jsonl"
    process = subprocess.Popen(
        place.command(
            "run", "-q", "-o", "run", "--alert", "loss > 0", "--alert-every", "0", "--alert-file", str(file), "train.py"
        ),
        cwd=place.path,
        env=place.env(),
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 60
        while not (file.exists() and file.stat().st_size > 20_000):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, number)
        assert process.wait(60) == -number
    finally:
        process.kill()
        process.wait()
    text = file.read_text(encoding="utf-8")
    assert text.endswith("\n")
    found = lines(file)
    assert len(found) > 50
    assert [one["step"] for one in found] == list(range(len(found))) or number == signal.SIGKILL


DEEP = script(
    "model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)], nn.Linear(8, 3))\n",
    TRAIN.format(steps=40),
)


@pytest.mark.slow
def test_thresholds_of_the_command_line_change_the_events(place: Place) -> None:
    place.write("train.py", DEEP)
    found = {}
    for name, options in {
        "plain": [],
        "threshold": ["--threshold", "weight_scale.rms=0.01"],
        "vanishing": ["--vanishing-threshold", "10", "--threshold", "vanishing_gradients.steps=2"],
    }.items():
        done = place.tool("run", "-q", "-o", name, "--overhead", "full", *options, "train.py")
        assert done.status == 0, done.err
        found[name] = {event.kind for event in neuraldbg.load(place.path / name).events}
    assert "large_weights" not in found["plain"]
    assert "vanishing_gradients" not in found["plain"]
    assert "large_weights" in found["threshold"]
    assert "vanishing_gradients" in found["vanishing"]


DYING = script(
    """
    model = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 3))
    with torch.no_grad():
        model[0].bias[:4] = -1e3
    """,
    TRAIN.format(steps=60),
)


@pytest.mark.slow
def test_the_share_of_dead_units_is_that_of_the_option(place: Place) -> None:
    place.write("train.py", DYING)
    found = {}
    for share in ("0.1", "0.3"):
        done = place.tool("run", "-q", "-o", share, "--overhead", "full", "--activation-threshold", share, "train.py")
        assert done.status == 0, done.err
        found[share] = {event.kind for event in neuraldbg.load(place.path / share).events}
    assert "dead_units" in found["0.1"], "4 of 20 units never fire"
    assert "dead_units" not in found["0.3"]


@pytest.mark.long
def test_the_trigger_of_a_halt_has_thresholds_too(place: Place) -> None:
    place.write("train.py", BROKEN.replace('float("nan")', "2.0"))
    strict = ("--threshold", "trigger.spike_factor=1.3")
    assert place.tool("run", "-q", "-o", "a", "--halt", *strict, "train.py").status == 1
    assert place.tool("run", "-q", "-o", "b", "--halt", "train.py").status == 0, "the loss must rise threefold"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--alert", "los"], "loss_spike"),
        (["--alert", "los > 3"], "no number called 'los'"),
        (["--alert", "loud:nan"], "'loud' is no severity"),
        (["--alert", "fc1"], "a layer's is 'layer.rms > 100'"),
        (["--alert-file", "no/such/folder/a"], "--alert-file no/such/folder/a: there is no folder"),
        (["--alert-file", "."], "this is a folder"),
        (["--alert-command", "no-such-program"], "--alert-command 'no-such-program': there is no such program"),
        (["--alert-command", "cat | tee"], "write sh -c 'cat | tee'"),
        (["--alert-webhook", "example.org/x"], "--alert-webhook: give an address"),
        (["--alert-every", "5"], "--alert-every is for alerts"),
        (["--alert-on-nan", "--alert-every", "-5"], "-5"),
        (["--threshold", "vanishing_gradients"], "write DETECTOR.NAME=VALUE"),
        (["--threshold", "vanishing.floor=1"], "Did you mean: vanishing_gradients"),
        (["--threshold", "vanishing_gradients.flor=1"], "did you mean 'floor'"),
        (["--threshold", "vanishing_gradients.floor=much"], "must be"),
        (["--threshold", "trigger.spike_factor=5"], "give --halt"),
        (["--halt", "--threshold", "trigger.spike_factr=5"], "did you mean 'spike_factor'"),
        (["--vanishing-threshold", "-1"], "--vanishing-threshold: threshold of vanishing_gradients"),
        (["--activation-threshold", "30"], "--activation-threshold: threshold of dead_units"),
    ],
)
def test_bad_options_are_refused_before_the_script_begins(
    place: Place, options: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuraldbg.cli import main

    monkeypatch.chdir(place.path)
    place.write("train.py", "print('it has begun')\n")
    for command in ("run", "debug"):
        assert main([command, *options, "train.py"]) == 2
        said = capsys.readouterr()
        assert words in said.err.replace("\n", " ")
        assert "it has begun" not in said.out
        assert "Traceback" not in said.err
