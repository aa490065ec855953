"""``neuraldbg profile``, and ``neuraldbg run`` with a profile and a trace: real runs, within 80 columns."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import neuraldbg
from neuraldbg.cli import main
from neuraldbg.cli.command import OK, USAGE
from neuraldbg.cli.profile import SORTS
from neuraldbg.show.terminal.profile import SORTED

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
deep = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(4)))
model = nn.ModuleDict({"a_backbone_with_a_very_long_name_that_fits_nowhere": deep, "head": nn.Linear(16, 4)})
whole = nn.Sequential(*model.values())
optimizer = torch.optim.Adam(whole.parameters())
data = torch.utils.data.TensorDataset(torch.randn(96, 16), torch.randint(0, 4, (96,)))
for epoch in range(3):
    for x, y in torch.utils.data.DataLoader(data, batch_size=8):
        optimizer.zero_grad()
        nn.functional.cross_entropy(whole(x), y).backward()
        optimizer.step()
print("trained")
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """Return the folder of a run with a profile and a trace, and what was printed."""
    folder = tmp_path_factory.mktemp("profiled")
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "neuraldbg", "run", "--profile", "--trace", "20:22", "-o", "run", "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "run", done


def test_the_profile_stands_below_the_diagnosis(profiled):
    folder, done = profiled
    assert done.stdout == "trained\n"
    assert done.stderr.index("steps") < done.stderr.index("\nPROFILE  ") < done.stderr.index("\nLayers\n")
    assert "USDT" not in done.stderr  # Kineto's own lines
    assert max(map(len, done.stderr.splitlines())) <= 80
    assert (folder / neuraldbg.load(folder).profile().timing.trace).is_file()


def test_the_trace_is_one_that_perfetto_opens(profiled):
    folder, _ = profiled
    trace = json.loads((folder / "rank0-trace-20-22.json").read_text())
    names = [event.get("name", "") for event in trace["traceEvents"]]
    assert sum(name.startswith("Optimizer.step#Adam") for name in names) == 3
    assert any(name == "aten::addmm" for name in names)


@pytest.mark.parametrize("sort", SORTS)
def test_layers_are_sorted_and_fit_into_the_terminal(profiled, sort, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["profile", str(profiled[0]), "--sort", sort, "--top", "4"]) == OK
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "(+11 more: --json)" in out
    timing = neuraldbg.load(profiled[0]).profile().timing
    # On a loaded machine sampled steps of so small layers may take several times as long as others.
    for part in ("data loader", "forward", "backward", "optimizer", "the rest"):
        assert any(line.strip().startswith(part) for line in lines) != timing.doubtful
    assert ("times as long as others" in " ".join(out.split())) == (timing.slowed >= 1.5)


def test_sorts_are_those_of_the_table():
    assert set(SORTS) == set(SORTED)


def test_json_to_standard_output_is_the_json_alone(profiled, capsys):
    assert main(["profile", str(profiled[0]), "--json", "-"]) == OK
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "neuraldbg.profile/1"
    layers = {one["layer"]: one for one in told["timing"]["layers"]}
    assert layers["1"]["flops"] == 2 * 8 * 16 * 4
    assert told == neuraldbg.load(profiled[0]).profile().to_dict()


def test_a_run_without_a_profile_says_so(tmp_path, capsys):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "neuraldbg", "run", "--no-profile", "-q", "-o", "run", "train.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert main(["profile", str(tmp_path / "run")]) == OK
    assert "no step was timed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--trace", "5"], "20:24"),
        (["--trace", "9:3"], "20:24"),
        (["--trace", "1:2", "--no-profile"], "leave out --no-profile"),
    ],
)
def test_a_window_that_is_none_is_refused(args, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert main(["run", *args, "train.py"]) == USAGE
    assert said in capsys.readouterr().err
