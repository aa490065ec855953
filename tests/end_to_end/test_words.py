"""Numbers that a newcomer meets in several places say what they are: each is worked out here from the record."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from neuraldbg import Run

WILD = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr={lr})
for step in range(60):
    x = torch.randn(32, 8)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
    loss.backward()
    optimizer.step()
print("final loss", loss.item())
"""


def command(*args, cwd):
    done = subprocess.run(
        [sys.executable, "-m", "neuraldbg", *args], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return " ".join((done.stdout + done.stderr).split())  # lines are wrapped where the folder's name is long


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with two runs that break, by a little and by a lot."""
    home = tmp_path_factory.mktemp("words")
    for name, rate in {"wild": 12.0, "mild": 0.1}.items():
        (home / f"{name}.py").write_text(WILD.format(lr=rate))
        (home / f"{name}.txt").write_text(command("run", "-o", name, f"{name}.py", cwd=home))
    return home


def test_each_last_loss_says_what_it_is(home):
    said = (home / "wild.txt").read_text()
    losses = Run.load(home / "wild").scalar("loss").values
    assert len(losses) == 60
    assert f"final loss {losses[-1]:.1f}" in said
    level = f"to {np.median(losses[-6:]):.3g}"
    assert f"{level} (median of the last 6 losses)" in said
    assert said.count(f"{level} ") == said.count(f"{level} (median of the last 6 losses)") >= 2
    assert f"last step {losses[-1]:.3g}" in command("plot", "wild", "--view", "loss", "--terminal", cwd=home)
    compared = command("compare", "wild", "mild", cwd=home)
    assert "Loss, over the steps that both have last step lowest mean" in compared
    assert f"wild {losses[-1]:.3g} {losses.min():.3g} {losses.mean():.3g}" in compared
