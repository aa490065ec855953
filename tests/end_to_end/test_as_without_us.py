"""A program under ``neuraldbg run`` behaves as without: arguments, files, modules, exits, errors, numbers."""

from __future__ import annotations

import json

import pytest
from tests.end_to_end.place import DATA, HEAD, MODEL, TRAIN, Place, record, script
from tests.families import some

PROJECT = (
    """
import argparse, sys
from helper import path_of_data
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--steps", type=int, default=20)
args = parser.parse_args()
"""
    + HEAD
    + """
raw = [float(v) for v in open("data/points.txt").read().split()]
x = torch.tensor(raw).view(-1, 8)
y = (x.sum(1) > 0).long()
"""
    + MODEL
    + """
opt = torch.optim.SGD(model.parameters(), lr=args.lr)
for _ in range(args.steps):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    print(repr(loss.item()))
open("result.txt", "w").write(repr([p.sum().item() for p in model.parameters()]))
sys.exit(3 if args.lr > 1 else 0)
"""
)


def write_project(place: Place, main: str) -> None:
    values = [((i * 7919) % 1000) / 500 - 1 for i in range(8 * 64)]
    place.write("data/points.txt", " ".join(map(str, values)))
    place.write("helper.py", "path_of_data = 'data/points.txt'\n")
    place.write(main, PROJECT)
    if "/" in main:
        place.write("package/__init__.py", "")


@pytest.mark.parametrize("lr", some(["0.1", "5"], 2))
@pytest.mark.parametrize("module", some([False, True], 2))
def test_arguments_files_numbers_and_exit_status(place: Place, module: bool, lr: str) -> None:
    write_project(place, "package/train.py" if module else "train.py")
    program = ("-m", "package.train") if module else ("train.py",)
    plain = place.python(*program, "--lr", lr)
    expected = (place.path / "result.txt").read_text()
    assert plain.status == (3 if lr == "5" else 0), plain.err
    (place.path / "result.txt").unlink()
    done = place.run(*program, "--lr", lr)
    assert (done.status, done.out) == (plain.status, plain.out), done.err  # the losses to the last digit
    assert (place.path / "result.txt").read_text() == expected
    run = record(done)
    assert run.steps == 20
    assert run.scalar("loss").values.tolist() == pytest.approx([float(v) for v in plain.out.split()], rel=1e-6)
    if lr == "5":
        assert run.info.outcome.kind == "raised"
        assert run.info.outcome.message == "SystemExit: 3"


def test_arguments_that_the_script_refuses(place: Place) -> None:
    write_project(place, "train.py")
    plain = place.python("train.py", "--lr", "many")
    done = place.run("-q", "train.py", "--lr", "many")
    assert (done.status, done.out) == (plain.status, plain.out) == (2, "")
    assert done.err == plain.err


def test_a_script_that_raises_in_the_middle_of_a_pass(place: Place) -> None:
    source = script(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(17, 3)
            def forward(self, x):
                return self.fc2(self.fc1(x))
        model = Net()
        """,
        TRAIN.format(steps=5),
    )
    place.write("train.py", source)
    plain = place.python("train.py")
    done = place.run("train.py")
    assert done.status == plain.status == 1
    error = plain.err.strip().splitlines()[-1]
    assert "RuntimeError" in error
    assert error in done.err
    assert "capture/loop/models.py" not in done.err  # no frame of ours in the user's traceback
    assert error.split(":", 1)[1].strip()[:20] in done.diagnosis["run"]["outcome"]["message"]
    assert done.diagnosis["run"]["outcome"]["where"].startswith("train.py:")


@pytest.mark.long
def test_an_error_that_the_script_handles_goes_on(place: Place) -> None:
    done = place.run(
        source=script(
            MODEL,
            """
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        handled = 0
        for step, (a, b) in enumerate(batches(30)):
            opt.zero_grad()
            try:
                if step % 10 == 5:
                    model(a[:, :3])
                if step % 10 == 7:
                    F.cross_entropy(model(a), b).sum().backward(gradient=torch.ones(5))
            except RuntimeError:
                handled += 1
            F.cross_entropy(model(a), b).backward()
            opt.step()
        print(handled)
        """,
        )
    )
    assert (done.status, done.out) == (0, "6\n"), done.err
    run = record(done)
    assert run.info.coverage["errors"] == 0
    assert run.steps == 30
    assert run.diagnose().verdict == "healthy"


def test_json_of_the_run_is_the_diagnosis(place: Place) -> None:
    place.write("train.py", script(MODEL, TRAIN.format(steps=20)))
    done = place.run("--json", "d.json", "train.py")
    assert done.status == 0, done.err
    assert json.loads((place.path / "d.json").read_text()) == done.diagnosis
    assert place.tool("run", "-q", "-o", "second", "train.py").err == ""


@pytest.mark.long
def test_train_eval_in_functions_and_checkpoints_saved_under_the_tool_load_without_it(place: Place) -> None:
    done = place.run(
        source=HEAD
        + DATA
        + MODEL
        + """
def train_one(model, opt):
    model.train()
    for a, b in batches(10):
        opt.zero_grad()
        F.cross_entropy(model(a), b).backward()
        opt.step()
@torch.no_grad()
def evaluate(net):
    net.eval()
    return (net(x).argmax(1) == y).float().mean().item()
def main():
    network = model
    opt = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for epoch in range(3):
        train_one(network, opt)
        evaluate(network)
    torch.save(network, "whole.pt")
    torch.save({"model": network.state_dict(), "opt": opt.state_dict()}, "state.pt")
main()
"""
    )
    assert done.status == 0, done.err
    run = record(done)
    assert run.steps == 30
    assert sum(run.scalar("evals").values) == 2
    assert run.info.models == ("model",)
    loaded = place.python(
        "-c",
        """
import sys
sys.modules["neuraldbg"] = None
import torch
model = torch.load("whole.pt", weights_only=False)
model.load_state_dict(torch.load("state.pt")["model"])
print(tuple(model(torch.zeros(2, 8)).shape))
""",
    )
    assert (loaded.status, loaded.out) == (0, "(2, 3)\n"), loaded.err
