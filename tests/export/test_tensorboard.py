"""What TensorBoard's own reader finds in the folder."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.export import record_oracle

from neuraldbg.errors import MissingExtra
from neuraldbg.export import Selection, export
from neuraldbg.nouns import STATS


def read(folder):
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0, "histograms": 0})
    found.Reload()
    return found


@pytest.fixture(scope="module")
def board(run, diagnosis, tmp_path_factory):
    return read(export(run, diagnosis, tmp_path_factory.mktemp("board") / "out", "tensorboard"))


def points(board, tag):
    return [(one.step, one.wall_time, one.value) for one in board.Scalars(tag)]


def assert_points(found, wanted):
    assert [one[0] for one in found] == [one[0] for one in wanted]
    np.testing.assert_allclose([one[1] for one in found], [one[1] for one in wanted], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(np.float32([one[2] for one in found]), np.float32([one[2] for one in wanted]))


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize("name", ["loss", "lr", "grad_norm", "duration"])
def test_scalars_of_each_optimizer_at_their_steps_and_times(run, board, name, stream):
    history = run.history
    wanted = {True: [], False: []}
    for at in np.flatnonzero(history.stream == stream).tolist():
        values = record_oracle.scalars(run, at)
        if name in values:
            when = run.info.started + history.time[at]
            wanted[bool(history.width[at] > 1)].append((int(history.steps[at]), when, values[name]))
    assert wanted[True]
    tag = f"run/{name}/optimizer {stream}"
    assert_points(points(board, tag), wanted[False])
    assert_points(points(board, f"{tag}/thinned_mean"), wanted[True])


def test_sites_by_kind_layer_and_statistic(run, board):
    history, rms = run.history, STATS.index("rms")
    names = {"=1+1": "=1+1", "/a/b": "%2Fa%2Fb", '<img src="x">,\n%': '<img src="x">,%0A%25'}
    compared = 0
    for site, where in enumerate(run.layout.sites):
        if where.module not in names or where.kind != "activation":
            continue
        own = [at for at, one in record_oracle.seen(run) if one == site]
        tag = f"activation/{names[where.module]}/rms"
        single = [at for at in own if history.width[at] == 1]
        when = [run.info.started + history.time[at] for at in single]
        steps = history.steps[single].tolist()
        assert_points(points(board, tag), list(zip(steps, when, history.mean[single, site, rms], strict=True)))
        for end, table in (("low", history.low), ("mean", history.mean), ("high", history.high)):
            bins = [at for at in own if history.width[at] > 1]
            found = points(board, f"{tag}/thinned_{end}")
            assert [one[0] for one in found] == history.steps[bins].tolist()
            np.testing.assert_array_equal(np.float32([one[2] for one in found]), table[bins, site, rms])
        compared += 1
    assert compared == 3


def test_histograms_hold_the_counts_of_the_record(run, board):
    wanted = {}
    for step, site, lower, upper, count in record_oracle.bins(run):
        wanted.setdefault((site, step), []).append((lower, upper, count))
    rows = {one.label: row for row, one in enumerate(run.layout.sites) if one.kind == "param_grad"}
    compared = 0
    for tag in board.Tags()["histograms"]:
        kind, _, label = tag.partition("/")
        for taken in board.Histograms(tag) if kind == "param_grad" and label in rows else ():
            own, value = wanted[rows[label], taken.step], taken.histogram_value
            used = [(end, count) for end, count in zip(value.bucket_limit, value.bucket, strict=True) if count]
            assert used == [(upper, count) for _, upper, count in own]
            assert (value.min, value.max, value.num) == (own[0][0], own[-1][1], sum(count for *_, count in own))
            at = np.flatnonzero(run.history.steps <= taken.step)[-1]
            assert taken.wall_time == pytest.approx(run.info.started + run.history.time[at], abs=1e-6)
            compared += 1
    assert compared > 10


def test_values_that_are_not_finite_are_counted(run, board):
    tags = [tag for tag in board.Tags()["scalars"] if tag.endswith("/nonfinite")]
    assert tags
    for tag in tags:
        assert all(one.value > 0 for one in board.Scalars(tag))
    assert not any(tag.startswith(("/", "run/=")) for tag in board.Tags()["scalars"])


def test_the_diagnosis_is_a_text(diagnosis, board):
    (tensor,) = board.Tensors("diagnosis")
    said = tensor.tensor_proto.string_val[0].decode()
    assert all(line.startswith("    ") for line in said.splitlines())
    assert said.split() == str(diagnosis).split()
    assert board.SummaryMetadata("diagnosis").plugin_data.plugin_name == "text"


def test_a_selection(run, diagnosis, tmp_path):
    found = read(export(run, diagnosis, tmp_path / "out", "tensorboard", Selection(("=1+1",), ("max", "nonfinite"))))
    sites = {tag for tag in found.Tags()["scalars"] if not tag.startswith("run/")}
    assert {tag.split("/")[2] for tag in sites if "thinned" not in tag} == {"max", "nonfinite"}
    assert {tag.split("/")[1].partition(".")[0] for tag in sites} == {"=1+1"}
    assert found.Tags()["histograms"] == []


def test_without_tensorboard(run, diagnosis, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match="tensorboard"):
        export(run, diagnosis, tmp_path / "out", "tensorboard")
    assert list(tmp_path.iterdir()) == []
