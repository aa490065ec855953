"""Runs of other lengths, thinned rows, light steps, several optimizers, and a million numbers."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.compare.paired_trainings import STEPS, Plan, changed, train
from tests.record.known_steps import layout, step
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg, Run
from neuraldbg.cli import main
from neuraldbg.cli.command import OK, VERDICT
from neuraldbg.compare import compare
from neuraldbg.config import RecordSettings
from neuraldbg.nouns import STATS, History, RunInfo, RunRecord, column
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
    one, other = record(tmp_path / "a", 3_000), record(tmp_path / "b", 5_000)
    assert [int(run.history.width.max()) for run in (one, other)] == [16, 256]
    found = compare(one, other)
    assert found.verdict == "identical"
    assert found.compared.read == found.compared.span[1] + 1 > 3_000 - 256  # the last bin may reach beyond the run
    assert any("extremes" in note for note in found.notes)


@pytest.mark.parametrize("odd", [3, 500, 2_321])
def test_a_single_step_that_differs_is_found_in_its_bin(tmp_path, odd):
    one, other = record(tmp_path / "a", 3_000), record(tmp_path / "b", 5_000, odd)
    found = compare(one, other)
    assert found.verdict == "diverged"
    assert found.first.step <= odd <= found.first.last
    assert found.first.last - found.first.step < 256
    assert (found.first.site, found.first.stat) == ("fc3.weight", "rms")
    assert found.first.since == found.first.step - 1
    assert [kind.differing for kind in found.kinds if kind.kind == "param_grad"] == [1]


def test_thinned_rows_of_which_some_steps_were_not_read_are_left_out(tmp_path):
    cost = RunInfo(coverage={"cost": {"light_steps": 1, "full_steps": 9}})
    one, other = record(tmp_path / "a", 3_000, info=cost), record(tmp_path / "b", 3_000, 500, info=cost)
    found = compare(one, other)
    single = [set(run.history.steps[(run.history.width == 1) & run.history.read].tolist()) for run in (one, other)]
    assert found.compared.read == len(single[0] & single[1]) < 500
    assert found.verdict == "identical"  # as far as it was read: the row of step 500 is no single step
    assert any("layers are not read at every step" in note for note in found.notes)


def test_layers_that_were_not_looked_at_are_no_difference():
    """One reads the layers at every step, the other at every third."""
    one, other = changed(drop_at=7), changed(settings={"capture": {"every": 3}})
    found = compare(one, other)
    assert found.compared.read == found.compared.scalars == STEPS  # of the others, weights and gradients were read
    assert (found.first.kind, found.first.step) == ("update", 7)
    assert [kind.first for kind in found.kinds if kind.kind == "activation"] == [9]  # 8 is none of every three


def light(run, *steps):
    """The run as it would be if layers had not been read in some steps."""
    history = run.history
    table = history.mean.copy()
    for name in STATS:
        table[list(steps), :, column(name)] = np.nan if name in ("mean", "std", "rms", "min", "max") else 0
    return replace(run, history=replace(history, mean=table, low=table, high=table))


def test_between_steps_that_were_read_the_loss_tells(base):
    """The rate falls at step 7, whose layers were not read in one of the runs: the loss of step 8 shows it."""
    found = compare(light(base, 7, 8, 9), changed(drop_at=7))
    assert found.compared.read == STEPS - 3
    assert (found.first.kind, found.first.step, found.first.since) == ("loss", 8, 7)
    assert "no output of a layer was read" in found.first.reading
    assert [kind.first for kind in found.kinds if kind.kind == "param"] == [10]
    assert found.summary.startswith("The runs are identical in the 7 steps up to step 7 that were read in both;")


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


def test_a_crashed_run_against_a_whole_one(base, tmp_path):
    def crash(model, step):
        if step == 5:
            raise ValueError("fire")

    with pytest.raises(ValueError, match="fire"):
        changed(before=crash, out=tmp_path)
    crashed = read_run(tmp_path)
    assert (crashed.steps, crashed.info.outcome.kind) == (5, "raised")
    found = compare(base, crashed)
    assert (found.verdict, found.compared.read) == ("identical", 5)
    assert ("outcome", "completed", "raised: ValueError: fire") in [(h.what, h.one, h.other) for h in found.health]


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


def test_five_hundred_sites_over_a_hundred_thousand_steps_take_seconds():
    """As many rows of time as a run file keeps of so many steps, each wide as a bin."""
    rows, sites, wide = 4_000, 500, 25
    random = np.random.default_rng(0)
    table = np.zeros((rows, sites, len(STATS)), np.float32)
    for name in ("mean", "std", "rms", "min", "max"):
        table[:, :, column(name)] = 1 + random.random((rows, sites), np.float32)
    table[:, :, [column("total"), column("count")]] = 4_096
    steps, zeros = np.arange(rows) * wide, np.zeros(rows, np.int64)
    history = History(steps, np.full(rows, wide), 0.1 * steps, zeros, zeros == 0, table, table, table, {})
    one = RunRecord(layout=layout(sites), history=history, steps=rows * wide)
    odd = table.copy()
    odd[3_960, -1, column("rms")] += 0.1
    other = replace(one, history=replace(history, mean=odd, low=odd, high=odd))
    begin = time.process_time()
    found = compare(one, other)
    took = time.process_time() - begin
    assert (found.first.step, found.first.last, found.first.site) == (99_000, 99_024, "fc499.weight")
    assert took < 10


def test_runs_of_which_one_failed_are_not_said_to_be_alike(tmp_path, capsys):
    def train(out, fails):
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(8, 4)
        with suppress(RuntimeError), NeuralDbg(model, out=out):
            for step in range(12):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
                if fails and step == 7:
                    raise RuntimeError("out of luck")

    train(tmp_path / "whole", fails=False)
    train(tmp_path / "failed", fails=True)
    found = Run.load(tmp_path / "failed").compare(Run.load(tmp_path / "whole"))
    assert (found.verdict, found.one_failed) == ("identical", True)
    assert "ended with RuntimeError: out of luck after 8 steps" in found.summary
    assert "completed after 12 steps" in found.summary
    runs = [str(tmp_path / "failed"), str(tmp_path / "whole")]
    assert main(["compare", *runs, "--fail-on", "divergence"]) == VERDICT
    assert "! IDENTICAL UNTIL ONE FAILED" in capsys.readouterr().out
    assert main(["compare", runs[1], runs[1], "--fail-on", "divergence"]) == OK
