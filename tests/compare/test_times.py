"""Runs of other lengths, thinned rows, light steps, several optimizers, and a million numbers."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.compare.trainings import STEPS, Plan, changed, train
from tests.record.helpers import layout, step
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.compare import compare
from neuraldbg.config import RecordSettings
from neuraldbg.nouns import RunInfo, RunRecord, column
from neuraldbg.record import Recorder, read_run


@pytest.fixture(scope="module")
def base():
    return train(Plan())


def record(folder, steps, odd=None, info=None, sites=4):
    """Record made-up steps; at the step ``odd`` the rms of the last site is another one."""
    recorder = Recorder(folder, RecordSettings(budget_mb=4, full_steps=64), info or RunInfo(script="simulated"))
    for index in range(steps):
        made = step(index, sites=sites)
        if index == odd:
            made.table[-1, column("rms")] += 0.25
        recorder.put(made, layout(sites))
        if index % 500 == 499:
            recorder.flush()
    recorder.close()
    assert recorder.problem is None
    return read_run(folder)


def test_a_shorter_run_is_compared_over_the_steps_in_common(base):
    found = compare(base, changed(steps=9))
    assert found.verdict == "identical"
    assert (found.compared.steps, found.compared.read, found.compared.span) == ((STEPS, 9), 9, (0, 8))
    assert "the runs have 16 and 9 steps: the common ones are compared" in found.notes
    assert [s.name for s in found.settings] == []


def test_thinned_rows_of_runs_of_other_lengths_are_compared_by_their_extremes(tmp_path):
    """The bins of the one are 16 steps wide where those of the other are 256."""
    one, other = record(tmp_path / "a", 40_000), record(tmp_path / "b", 70_000)
    widths = {int(w) for run in (one, other) for w in run.history.width[run.history.steps < 40_000]}
    assert len(widths) > 2, "the bins must not be the same for the test to mean something"
    found = compare(one, other)
    assert found.verdict == "identical"
    assert found.compared.span == (0, 39_999) or found.compared.span[1] > 39_000
    assert found.compared.read > 38_000
    assert any("extremes" in note for note in found.notes)


@pytest.mark.parametrize("odd", [3, 5_000, 24_321])
def test_a_single_step_that_differs_is_found_in_its_bin(tmp_path, odd):
    one, other = record(tmp_path / "a", 40_000), record(tmp_path / "b", 50_000, odd)
    found = compare(one, other)
    assert found.verdict == "diverged"
    assert found.first.step <= odd <= found.first.last
    assert found.first.last - found.first.step < 4_096
    assert (found.first.site, found.first.stat) == ("fc3.weight", "rms")
    assert found.first.since == found.first.step - 1
    assert [kind.differing for kind in found.kinds if kind.kind == "param_grad"] == [1]


def test_thinned_rows_of_which_some_steps_were_not_read_are_left_out(tmp_path):
    cost = RunInfo(coverage={"cost": {"light_steps": 1, "full_steps": 9}})
    one, other = record(tmp_path / "a", 20_000, info=cost), record(tmp_path / "b", 20_000, 5_000, info=cost)
    found = compare(one, other)
    assert found.compared.read == int(((one.history.width == 1) & one.history.read).sum())
    assert found.verdict == "identical"  # as far as it was read: the row of step 5,000 is no single step
    assert any("not every step was read" in note for note in found.notes)


def test_light_steps_are_compared_where_both_were_read():
    """One reads every step, the other every third."""
    one, other = changed(drop_at=7), changed(settings={"capture": {"every": 3}})
    found = compare(one, other)
    assert found.compared.read == len(range(0, STEPS, 3))
    assert found.compared.scalars == STEPS
    # The rate falls at step 7, the loss shows it at step 8, layers were read next at step 9.
    assert (found.first.kind, found.first.step, found.first.since) == ("loss", 8, 7)
    assert "no output of a layer was read" in found.first.reading
    assert [kind.first for kind in found.kinds if kind.kind == "param"] == [9]


@pytest.mark.budget
def test_the_same_training_twice_is_identical_at_the_usual_overhead():
    runs = [changed(overhead=0.01, steps=120) for _ in range(2)]
    found = compare(*runs)
    assert (found.verdict, found.settings) == ("identical", ())
    assert 0 < found.compared.read <= 120
    assert found.compared.scalars == 120


def two_optimizers(second_every=1, nudge=None):
    torch.manual_seed(0)
    one, two = nn.Linear(4, 4), nn.Linear(4, 2)
    first, second = torch.optim.SGD(one.parameters(), lr=0.1), torch.optim.SGD(two.parameters(), lr=0.1)
    with NeuralDbg(nn.ModuleDict({"one": one, "two": two}), overhead=None, probes=False, discover=True) as dbg:
        for i in range(12):
            x = torch.randn(8, 4)
            first.zero_grad()
            one(x).square().mean().backward()
            first.step()
            if i % second_every == 0:
                second.zero_grad()
                loss = F.cross_entropy(two(x), torch.zeros(8).long()) * (2 if i == nudge else 1)
                loss.backward()
                second.step()
    return dbg.record()


def test_each_optimizer_is_compared_with_its_counterpart():
    base = two_optimizers()
    assert base.streams == (0, 1)
    assert compare(base, two_optimizers()).verdict == "identical"
    found = compare(base, two_optimizers(nudge=5))
    assert (found.first.step, found.first.site) == (11, "loss of optimizer 1")
    assert [pair.parts for pair in found.losses] == [None, 11]


# ---------------------------------------------------------------- runs with nothing to compare


def test_runs_without_steps(base):
    for pair in ((RunRecord(), base), (base, RunRecord()), (RunRecord(), RunRecord())):
        found = compare(*pair, names=("this", "that"))
        assert found.verdict == "incomparable"
        assert found.summary.startswith("Nothing can be compared:")
        assert found.to_json()
    assert "that has no recorded step" in compare(base, RunRecord(), names=("this", "that")).summary


def test_a_crashed_run_against_a_whole_one(base):
    with pytest.raises(ValueError, match="fire"):
        changed(before=lambda model, step: (_ for _ in ()).throw(ValueError("fire")) if step == 5 else None)


def test_runs_that_have_no_step_in_common(base):
    later = replace(base, history=replace(base.history, steps=base.history.steps + 1_000))
    found = compare(base, later)
    assert (found.verdict, found.compared.span) == ("incomparable", None)


def test_a_run_that_began_later_is_compared_from_there_on(base):
    history = base.history
    cut = {name: getattr(history, name)[6:] for name in ("steps", "width", "time", "stream", "applied", "mean")}
    late = replace(history, **cut, low=history.low[6:], high=history.high[6:],
                   scalars={name: values[6:] for name, values in history.scalars.items()})  # fmt: skip
    found = compare(base, replace(base, history=late))
    assert (found.verdict, found.compared.span) == ("identical", (6, STEPS - 1))


# ---------------------------------------------------------------- size


@pytest.mark.slow
def test_five_hundred_sites_over_a_hundred_thousand_steps_take_seconds(tmp_path, capsys):
    runs = [record(tmp_path / name, 100_000, odd, sites=500) for name, odd in (("a", None), ("b", 99_000))]
    begin = time.process_time()
    found = compare(*runs)
    took = time.process_time() - begin
    with capsys.disabled():
        print(f"\n500 sites x 100,000 steps ({len(runs[0].history):,} rows): {took:.2f} s of CPU")
    assert found.first.step <= 99_000 <= found.first.last
    assert took < 10
    assert np.isfinite(found.drift.values).all()
