"""The crash dump of a saved run against the one that the live session wrote."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.export import recorded_runs

from neuraldbg.export import export
from neuraldbg.saved import Run


def test_it_is_what_the_flight_recorder_dumped(whole, short, tmp_path):
    live = json.loads((whole / "crash.json").read_text())
    made = json.loads(short.export(tmp_path / "crash.json", "crash").read_text())
    assert made["metadata"].pop("dump_timestamp") > live["metadata"].pop("dump_timestamp")
    assert made["metadata"] == live["metadata"]
    assert len(made["history"]) == len(live["history"]) == 30
    for one, other in zip(made["history"], live["history"], strict=True):
        assert (one["step"], one["loss"]) == (other["step"], other["loss"])
        assert one["timestamp"] == pytest.approx(other["timestamp"], abs=5.0)
        for norms in ("grad_norms", "act_norms"):
            assert list(one[norms]) == list(other[norms])
            for layer, norm in one[norms].items():
                # The record keeps float32, the ring had float64; infinities of float32 are clipped there.
                assert norm == (other[norms][layer] if isinstance(norm, str) else pytest.approx(other[norms][layer]))


def test_light_steps_have_a_loss_and_no_norms(run, diagnosis, tmp_path):
    made = json.loads(export(run, diagnosis, tmp_path / "crash.json", "crash").read_text())
    rows = made["history"]
    assert len(rows) == made["metadata"]["captured_steps"] == made["metadata"]["capacity"] == 100
    assert [row["step"] for row in rows] == list(range(run.steps - 100, run.steps))
    assert rows[-1]["loss"] == "NaN"
    read = {int(step) for step in run.history.steps[run.history.read & (run.history.width == 1)]}
    assert {row["step"] for row in rows if row["act_norms"]} == read & {row["step"] for row in rows}


def test_of_a_run_that_broke_long_before_its_end_the_steps_around_that_are_held(tmp_path):
    recorded_runs.jumped(tmp_path / "run")
    run = Run.load(tmp_path / "run")
    loss = run.scalar("loss")
    broke = int(loss.steps[np.flatnonzero(~np.isfinite(loss.values))[0]])
    assert 150 < broke < 170
    live = json.loads((tmp_path / "run" / "crash.json").read_text())
    made = json.loads(run.export(tmp_path / "crash.json", "crash").read_text())
    for dump in (live, made):
        assert [row["step"] for row in dump["history"]] == list(range(broke + 10 - 100, broke + 10))
        assert next(row["step"] for row in dump["history"] if isinstance(row["loss"], str)) == broke
        assert dump["metadata"]["captured_steps"] == dump["metadata"]["capacity"] == 100
