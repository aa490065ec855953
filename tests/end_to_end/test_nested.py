"""A program under ``neuraldbg run`` that watches itself, and pytest with tests that do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from neuraldbg import Run

if TYPE_CHECKING:
    from tests.end_to_end.place import Place

PROGRAM = """
import torch
from torch import nn
from neuraldbg import NeuralDbg, TrainingHalted
from neuraldbg.control import TriggerEngine

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(steps):
    for _ in range(steps):
        x, y = torch.randn(8, 6), torch.randint(3, (8,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(torch.softmax(model(x), -1), y)
        loss.backward()
        optimizer.step()
    print(repr(loss.item()))

train(10)
with NeuralDbg(model, optimizer, out="own", overhead=None, snapshots=["0"], on_step=lambda step, events: None) as dbg:
    dbg.add_breakpoint("nonfinite_loss", print)
    train(20)
    print(dbg.steps, dbg.inspect("0").statistics["activation"], dbg.get_gradient_history("2").steps[-1])
print(dbg.steps, dbg.explain_failure()[0].cause, dbg.diagnose().summary)
try:
    with NeuralDbg(model, halt=TriggerEngine(1e-9, 3.0)) as halting:
        train(5)
except TrainingHalted as halted:
    print(halted)
with NeuralDbg(None, discover=True) as found:
    train(5)
print(found.steps)
train(10)
"""

TESTS = """
import pytest, torch
from torch import nn
from neuraldbg import NeuralDbg

@pytest.mark.parametrize("seed", range(3))
def test_it_learns(seed, tmp_path):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, out=tmp_path / "run", overhead=None) as dbg:
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()
            assert not dbg.has_exploding_gradients()
    assert dbg.steps == 6
    assert dbg.inspect("0").step == 5
    assert (tmp_path / "run" / "diagnosis.json").exists()
"""


def test_a_program_that_watches_itself(place: Place) -> None:
    place.write("train.py", PROGRAM)
    bare = place.python("train.py")
    assert (bare.status, bare.err) == (0, "")
    own = json.loads((place.path / "own/diagnosis.json").read_text())
    watched = place.tool("run", "-o", "run", "train.py")
    assert (watched.status, watched.out) == (0, bare.out)
    assert "Traceback" not in watched.err
    assert Run.load(place.path / "run").steps == 10 + 20 + 5 + 10
    files = [json.loads(path.read_text()) for path in place.path.glob("own*/**/diagnosis.json")]
    assert [told["hypotheses"] for told in files] == [own["hypotheses"]] * len(files)


@pytest.mark.long
def test_pytest_with_tests_that_watch(place: Place) -> None:
    place.write("test_model.py", TESTS)
    watched = place.tool("run", "-o", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_model.py")
    assert watched.status == 0, watched.out + watched.err
    assert "3 passed" in watched.out
    run = Run.load(place.path / "run")
    assert run.steps == 18
    assert len(run.info.models) == 3
