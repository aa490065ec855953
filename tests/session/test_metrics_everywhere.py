"""A logged metric in all that reads a run: pictures, the command line, exports, comparisons, the dashboard's list."""

from __future__ import annotations

import csv
import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

import neuraldbg
from neuraldbg import NeuralDbg
from neuraldbg.cli import main
from neuraldbg.errors import UnknownMetric
from neuraldbg.show.views import view
from neuraldbg.show.views.view import Choice

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 24


def record(folder: Path, change: float = 0.0, extra: str = "") -> Path:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 2), torch.randn(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, out=folder, overhead=None, probes=False) as dbg:
        for step in range(STEPS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
            optimizer.step()
            if step % 4 == 3:
                dbg.log({"val/accuracy": step / 100 + change * (step > 10)}, **({extra: 1.0} if extra else {}))
        dbg.log(odd=math.nan)
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("runs") / "one")


def test_a_picture_of_a_metric(saved: Path) -> None:
    run = neuraldbg.load(saved)
    for stat in ("metric/val/accuracy", "val/accuracy"):
        lines = view("series", run, run.diagnose(), Choice(stat=stat))
        (line,) = lines.lines
        assert (lines.title, line.name) == ("val/accuracy", "val/accuracy")
        assert line.steps.tolist() == [3, 7, 11, 15, 19, 23]
        np.testing.assert_allclose(line.values, [step / 100 for step in line.steps])
    with pytest.raises(UnknownMetric, match="Did you mean: val/accuracy"):
        view("series", run, run.diagnose(), Choice(stat="metric/accuracy"))


def test_the_command_draws_it_by_its_name(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(saved), "--metric", "val/accuracy", "--terminal"]) == 0
    shown = capsys.readouterr().out
    assert "val/accuracy" in shown
    assert "Logged by the program" in shown
    assert main(["plot", str(saved), "--stat", "metric/val/accuracy", "-o", str(tmp_path / "a.svg")]) == 0
    assert (tmp_path / "a.svg").stat().st_size > 1000
    assert main(["plot", str(saved), "--metric", "val/acuracy", "--terminal"]) == 2
    assert "Did you mean: val/accuracy?" in capsys.readouterr().err
    assert main(["plot", str(saved), "--metric", "odd", "--stat", "rms"]) == 2
    assert "give one of both" in capsys.readouterr().err


def test_every_export_has_it(saved: Path, tmp_path: Path) -> None:
    run = neuraldbg.load(saved)
    for name in ("csv", "json", "perfetto"):
        run.export(tmp_path / name, name)
    with (tmp_path / "csv" / "steps.csv").open() as opened:
        rows = list(csv.DictReader(opened))
    assert [row["metric/val/accuracy"] for row in rows[3::4]] == ["0.03", "0.07", "0.11", "0.15", "0.19", "0.23"]
    assert rows[0]["metric/val/accuracy"] == ""
    assert (rows[-1]["metric/odd"], rows[-2]["metric/odd"]) == ("NaN", "")
    told = json.loads((tmp_path / "csv" / "about.json").read_text())["tables"]["steps"]
    assert "logged by the program" in str(told)
    back = neuraldbg.load(tmp_path / "json")
    assert back.metrics == run.metrics == ("odd", "val/accuracy")
    assert back.metric("val/accuracy").values.tolist() == run.metric("val/accuracy").values.tolist()
    assert math.isnan(back.metric("odd").at(STEPS - 1))
    assert '"metric/val/accuracy"' in (tmp_path / "perfetto").read_text()


def test_tensorboard_and_parquet_have_it(saved: Path, tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    parquet = pytest.importorskip("pyarrow.parquet")
    run = neuraldbg.load(saved)
    run.export(tmp_path / "tb", "tensorboard")
    points = event_accumulator.EventAccumulator(str(tmp_path / "tb")).Reload().Scalars("run/metric/val/accuracy")
    assert [(one.step, one.value) for one in points] == [(s, pytest.approx(s / 100)) for s in range(3, STEPS, 4)]
    run.export(tmp_path / "pq", "parquet")
    (file,) = (tmp_path / "pq").glob("steps*.parquet")
    column = parquet.read_table(file)["metric/val/accuracy"].to_pylist()
    assert column[3::4] == [step / 100 for step in range(3, STEPS, 4)]
    assert column[0] is None


def test_a_comparison_names_the_first_difference_and_keeps_its_verdict(saved: Path, tmp_path: Path) -> None:
    one, other = neuraldbg.load(saved), neuraldbg.load(record(tmp_path / "two", change=0.5, extra="reward"))
    same = one.compare(one)
    assert same.verdict == "identical"
    assert not [note for note in same.notes if "metric" in note]
    compared = one.compare(other)
    assert compared.verdict == "identical", "no step of the training differs"
    assert "the metric 'val/accuracy' differs first at step 11: 0.11 in A and 0.61 in B" in compared.notes
    assert "metrics of B alone: 'reward'" in compared.notes


def test_the_dashboard_lists_it(saved: Path) -> None:
    pytest.importorskip("dash")
    from neuraldbg.dashboard.feed import Moment
    from neuraldbg.dashboard.page.address import State
    from neuraldbg.dashboard.page.context import fitting

    run = neuraldbg.load(saved)
    made = Moment.__new__(Moment)
    object.__setattr__(made, "record", run)
    object.__setattr__(made, "diagnosis", run.diagnose())
    state, *_, problems = fitting(State(scalar="metric/val/accuracy"), made)
    assert (state.scalar, problems) == ("metric/val/accuracy", ())
    state, *_, problems = fitting(State(scalar="metric/other"), made)
    assert state.scalar is None
    assert "metric/val/accuracy" in problems[0]
