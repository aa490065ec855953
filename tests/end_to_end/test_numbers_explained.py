"""Numbers that a newcomer meets in several places say what they are: each is worked out here from the record."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from neuraldbg import Run
from neuraldbg.show.format.safe_text import duration, number

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

LOG_OF_ZERO = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(-1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
for step in range(70):
    x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
    picked = model(x)[torch.arange(32), y]
    loss = -torch.log(torch.relu(picked - 0.3 * (step >= 60))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

INSIDE = """
import torch
from torch import nn


class LogOfZero(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.step = 0

    def forward(self, x):
        p = self.layer(x).softmax(-1) - 0.3 * (self.step >= 40)
        return torch.log(torch.relu(p))


torch.manual_seed(0)
model = LogOfZero()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(45):
    x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
    model.step = step
    loss = nn.functional.nll_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def command(*args, cwd):
    done = subprocess.run(
        [sys.executable, "-m", "neuraldbg", *args], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return " ".join((done.stdout + done.stderr).split())  # lines are wrapped where the folder's name is long


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run that breaks, one that does not, and one whose loss takes the log of 0."""
    home = tmp_path_factory.mktemp("words")
    programs = {"wild": WILD.format(lr=12.0), "mild": WILD.format(lr=0.1), "log": LOG_OF_ZERO, "inside": INSIDE}
    for name, program in programs.items():
        (home / f"{name}.py").write_text(program)
        (home / f"{name}.txt").write_text(command("run", "-v", "-o", name, f"{name}.py", cwd=home))
    return home


def test_each_last_loss_says_what_it_is(home):
    said = (home / "wild.txt").read_text()
    losses = Run.load(home / "wild").scalar("loss").values
    assert len(losses) == 60
    assert f"final loss {losses[-1]:.1f}" in said
    level = f"to {number(np.median(losses[-6:]))}"
    assert said.count(level) == said.count(f"{level}* ") >= 2
    assert "* median of the last 6 losses" in said
    assert f"{number(losses[-1])} at step 59" in command("plot", "wild", "--view", "loss", "--terminal", cwd=home)
    compared = command("compare", "wild", "mild", cwd=home)
    assert "Loss, over the common steps last finite lowest mean" in compared
    assert " ".join(["wild", *map(number, (losses[-1], losses.min(), losses.mean()))]) in compared


def test_the_size_of_updates_says_that_it_is_the_median_over_weight_matrices(home):
    run = Run.load(home / "log")
    sites = {site.label: row for row, site in enumerate(run.layout.sites) if site.kind == "param"}
    moved = {site.label: row for row, site in enumerate(run.layout.sites) if site.kind == "update"}
    matrices = ["0.weight", "2.weight"]
    assert set(matrices) <= set(sites)
    ratios = [run.series(moved[name], "rms").values / run.series(sites[name], "rms").values for name in matrices]
    largest = np.median(ratios, axis=0)[:60].max()
    said = " ".join(one.statement for one in run.diagnose().hypotheses[0].evidence)
    assert f"at most {largest:.3g} of the weights (median over weight matrices)" in said
    assert max(ratio[:60].max() for ratio in ratios) > 1.05 * largest  # what a picture of each layer shows


@pytest.mark.parametrize(
    ("name", "code", "what"),
    [
        ("log", "loss = -torch.log(torch.relu(picked - 0.3 * (step >= 60))).mean()", "the loss is computed"),
        ("inside", "return torch.log(torch.relu(p))", "this operation gave the first non-finite value"),
        ("wild", "optimizer = torch.optim.SGD(model.parameters(), lr=12.0)", "the optimizer is created"),
    ],
)
def test_the_line_that_is_pointed_at_says_what_happens_on_it(home, name, code, what):
    program = (home / f"{name}.py").read_text().splitlines()
    (place,) = Run.load(home / name).diagnose().hypotheses[0].places
    assert (place.code, place.what) == (code, what)
    assert program[place.line - 1].strip() == code
    assert f"{code} ({what} here)" in (home / f"{name}.txt").read_text()


def test_the_overhead_of_a_short_run_says_what_is_allowed_at_the_start(home):
    known = Run.load(home / "wild").diagnose().run
    cost = known["coverage"]["cost"]
    assert cost["own_s"] < cost["allowance_s"]
    assert cost["ratio"] > cost["budget"] == 0.01
    assert cost["training_s"] + cost["own_s"] < cost["elapsed_s"]
    parts, full, light = cost["parts_s"], cost["full_steps"], cost["light_steps"]
    profile = parts.get("profile", 0.0) + parts.get("memory records", 0.0)
    mine = cost["own_s"] - parts.get("light steps", 0.0) - parts["writing"] - profile

    def written(ms: float) -> str:
        return "under 0.1" if ms < 0.1 else f"{ms:.2g}" if ms < 10 else f"{ms:.0f}"

    sighted, lights = cost["sighted_steps"], parts.get("light steps", 0.0)
    if sighted:  # on a slow machine, where some steps are too dear to be read in full
        mine, full = cost["full_s"], full - sighted
        lights = cost["own_s"] - mine - cost["sighted_s"] - profile
    each = f"{written(1000 * mine / full)} ms in each of {full} full steps"
    if sighted:
        each += f", {written(1000 * cost['sighted_s'] / sighted)} ms in each of {sighted} of which only the layers were"
        each += " read"
    if light:
        each += f", {written(1000 * lights / light)} ms in each of {light} light ones"
    if profile >= 0.05 * cost["own_s"]:
        each += f", {duration(profile)} for the profile"
    took = f"{duration(cost['own_s'])} on {duration(cost['training_s'])} of training: {each}"
    allowed = "2 s at the start, then 1%"
    digits = 1 if cost["ratio"] < 0.1 else 0
    share = f"{100 * cost['ratio']:.{digits}f}% of the steps"
    said = f"overhead {share} ({took}; allowed: {allowed})"
    if not digits:  # a short run is mostly imports, so the part of its whole time is said first
        whole = 100 * cost["own_s"] / known["duration_s"]
        of_run = f"{whole:.{1 if whole < 10 else 0}f}% of the run"
        said = f"overhead {duration(cost['own_s'])} ({of_run}; {share}: {took}; allowed: {allowed})"
    assert said in (home / "wild.txt").read_text()


def test_without_a_budget_nothing_is_allowed_or_not(home):
    said = command("run", "-v", "--overhead", "full", "-o", "full", "mild.py", cwd=home)
    cost = Run.load(home / "full").diagnose().run["coverage"]["cost"]
    assert cost["budget"] is None
    assert f"overhead {100 * cost['ratio']:.0f}% " in said
    assert "allowed" not in said
    command("report", "full", "-o", "full.md", cwd=home)
    assert "of the training's own time" in (home / "full.md").read_text()
