"""`neural profile`: the profile of a short training, memory by layer, and the time of predictions."""

import json

import numpy as np
import pytest
from tests.neural.sample_files import CNN

from neural import compile_plan, latency, parse
from neural.check.checker import checked
from neural.cli import main
from neural.cli.profile import latency_lines


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.neural").write_text(CNN, encoding="utf-8")
    random = np.random.default_rng(0)
    np.savez("data.npz", x=random.normal(size=(80, 28, 28, 1)), y=np.arange(80) % 10)
    return "a.neural"


@pytest.mark.slow
def test_the_profile_of_a_training(model, capsys):
    assert main(["profile", model, "--data", "data.npz", "--batch-size", "4", "--memory", "--latency"]) == 0
    out, err = capsys.readouterr()
    assert "neuraldbg run --profile" in err
    assert "PROFILE" in out
    assert "Conv2D_1" in out
    assert "FLOP" in out
    assert "Memory of each layer" in out
    assert "Peak memory while each layer ran" in out
    assert "Latency of predict on cpu" in out


def test_latency_is_measured_for_each_size(model, capsys):
    plan = checked(parse(CNN))
    with open("model.py", "w", encoding="utf-8") as file:  # noqa: PTH123 (a relative path, as the command gives)
        file.write(compile_plan(plan))
    latency.main(["model.py", "data.npz", "--batch", "1", "--batch", "200"])
    found = json.loads(capsys.readouterr().out)
    assert [each["batch"] for each in found["batches"]] == [1, 200]
    for each in found["batches"]:
        assert latency.LEAST <= each["runs"] <= latency.MOST
        assert 0 < each["low_s"] <= each["median_s"] <= each["high_s"]


def test_the_table_of_latencies():
    one = {"batch": 1, "runs": 9, "median_s": 7.16e-5, "low_s": 6.9e-5, "high_s": 8.7e-5}
    many = {"batch": 64, "runs": 9, "median_s": 0.0123, "low_s": 0.012, "high_s": 1.5}
    assert (
        latency_lines({"device": "cpu", "threads": 2, "batches": [one, many]})
        == """\
Latency of predict on cpu, 2 threads
  batch   median  8 of 10 within  samples/s
      1  71.6 us  69 us to 87 us     13,966
     64  12.3 ms  12 ms to 1.5 s      5,203"""
    )


def test_files_and_data_that_are_not_there(model, capsys):
    assert main(["profile", "b.neural"]) == 2
    assert main(["profile", model, "--data", "none.npz"]) == 2
    assert "none.npz" in capsys.readouterr().err
