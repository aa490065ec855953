"""Diagnostics by hand: what is given is what is recorded, models of any framework are read, and answers are judged."""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.health.scalar_runs import HandRecord
from torch import nn

from neuraldbg.errors import ConfigError
from neuraldbg.nouns import SCALARS, FactKey
from neuraldbg.nouns.facts.architecture import ROWS, ArchitectureFact
from neuraldbg.record import fact_shapes
from neuraldbg.toolbox.model_diagnostics import ModelArchitectureInfo, ModelDiagnostics, ModelPerformanceMetrics


def made():
    by_hand = HandRecord()
    part = ModelDiagnostics(
        put_scalars=by_hand.put_scalars, put_fact=by_hand.put_fact, record=by_hand.record, diagnose=by_hand.diagnose
    )
    return part, by_hand


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 50, bias=False))
        self.body[3].weight = nn.Parameter(torch.zeros(50, 32, dtype=torch.bfloat16), requires_grad=False)


# ---------------------------------------------------------------- architecture


def test_a_torch_model_is_read_as_torch_counts_it():
    model = Net()
    info = ModelArchitectureInfo.of(model, dataset_samples=7)
    every = list(model.parameters())
    assert info.total_parameters == sum(p.numel() for p in every)
    assert info.trainable_parameters == sum(p.numel() for p in every if p.requires_grad)
    assert info.model_size_mb == pytest.approx(sum(p.numel() * p.element_size() for p in every) / 1e6)
    assert info.layer_count == 4
    assert info.layer_types == {"Embedding": 1, "Linear": 2, "GELU": 1, "LayerNorm": 1}
    assert (info.width, info.depth, info.activation_functions) == (50, None, ("GELU",))
    assert (info.name, info.dataset_samples) == ("Net", 7)
    row = next(row for row in info.layers if row.path == "body.0")
    assert (row.type, row.parameters, row.shape) == ("Linear", 16 * 32 + 32, (32, 16))
    chain = ModelArchitectureInfo.of(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 1))))
    assert (chain.depth, chain.layer_count) == (2, 2)


def test_shared_parameters_count_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    assert ModelArchitectureInfo.of(model).total_parameters == sum(p.numel() for p in model.parameters()) == 24


@pytest.mark.parametrize(
    ("tree", "total", "layers"),
    [
        ({"fc1": {"kernel": np.zeros((8, 4)), "bias": np.zeros(4)}, "fc2": {"kernel": np.zeros((4, 1))}}, 40, 2),
        ([(np.zeros((8, 4)), np.zeros(4)), (np.zeros((4, 1)), np.zeros(1))], 41, 2),
        ({"fc1.weight": np.zeros((4, 8)), "fc1.bias": np.zeros(4)}, 36, 1),
        ({"w": np.zeros((4, 8), np.float16), "b": np.zeros(4), "none": None, "scale": np.float32(1)}, 37, None),
        ({"a": torch.zeros(3, 2)}, 6, None),
    ],
)
def test_trees_of_arrays_are_read(tree, total, layers):
    info = ModelArchitectureInfo.of(tree)
    assert (info.total_parameters, info.layer_count, info.trainable_parameters) == (total, layers, None)
    assert sum(row.parameters for row in info.layers) == total


@pytest.mark.slow
def test_a_keras_model_is_read_as_keras_counts_it():
    code = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
from neuraldbg.toolbox.model_diagnostics import ModelArchitectureInfo
m = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.BatchNormalization(),
                      keras.layers.Dense(1)])
i = ModelArchitectureInfo.of(m)
assert i.total_parameters == m.count_params(), i
assert i.trainable_parameters == sum(int(w.numpy().size) for w in m.trainable_weights), i
assert i.layer_types == {"Dense": 2, "BatchNormalization": 1}, i
assert (i.width, i.depth, i.layer_count, i.activation_functions) == (16, 3, 3, ("relu",)), i
assert abs(i.model_size_mb - 4 * i.total_parameters / 1e6) < 1e-9, i
x = keras.Input((4,)); inner = keras.Sequential([keras.layers.Dense(3)], name="inner")
outer = keras.Model(x, keras.layers.Dense(1, name="head")(inner(x)))
rows = {r.path: r.parameters for r in ModelArchitectureInfo.of(outer).layers if r.parameters}
assert sum(rows.values()) == outer.count_params() and "head" in rows, rows
try:
    ModelArchitectureInfo.of(keras.Sequential([keras.layers.Dense(2)]))
except Exception as error:
    assert "build it" in str(error), error
else:
    raise SystemExit("not refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_framework_is_imported():
    code = (
        "import sys, numpy as np\nfrom neuraldbg.toolbox.model_diagnostics import ModelArchitectureInfo\n"
        "ModelArchitectureInfo.of({'w': np.zeros(3)})\n"
        "sys.exit(str({'torch', 'keras', 'jax', 'tensorflow'} & set(sys.modules)) if 'torch' in sys.modules else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("model", [None, 3, "model", {}, {"a": "text"}, object(), nn.LazyLinear(3)])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(ConfigError):
        ModelArchitectureInfo.of(model)


@pytest.mark.parametrize(
    "values",
    [
        {"total_parameters": -1},
        {"total_parameters": 1.5},
        {"total_parameters": 3, "trainable_parameters": 4},
        {"total_parameters": 3, "model_size_mb": -1.0},
        {"total_parameters": 3, "layer_types": ["Linear"]},
        {"total_parameters": 3, "activation_functions": "relu"},
        {"total_parameters": 3, "layers": ({"path": "a"},)},
    ],
)
def test_wrong_numbers_of_an_architecture_are_refused(values):
    with pytest.raises(ConfigError):
        ModelArchitectureInfo(**values)


def test_the_fact_is_what_a_run_file_accepts_and_is_bounded():
    part, by_hand = made()
    part.record_architecture(Net())
    (fact,) = by_hand.facts
    assert fact.key == FactKey.ARCHITECTURE.value
    assert fact_shapes.fitting(fact.key, fact.value) == fact.value
    assert isinstance(fact.known, ArchitectureFact)
    assert fact.known == ModelArchitectureInfo.of(Net()).fact()
    many = ModelArchitectureInfo.of({f"layer{i}/w": np.zeros(2) for i in range(ROWS + 5)})
    assert (len(many.layers), many.layer_count, many.total_parameters) == (ROWS, ROWS + 5, 2 * (ROWS + 5))


# ---------------------------------------------------------------- performance


def test_each_number_is_recorded_under_its_name():
    now = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    metrics = ModelPerformanceMetrics(
        training_step=100, loss=0.5, accuracy=0.85, learning_rate=1e-4, batch_size=32, throughput_samples_per_sec=900.0,
        memory_usage_mb=512.0, gpu_utilization=0.9, validation_loss=0.6, timestamp=now, metrics={"reward": -3},
    )  # fmt: skip
    part, by_hand = made()
    part.record_performance(metrics)
    assert by_hand.steps == {
        100: {
            "loss": 0.5, "loss_nonfinite": 0.0, "lr": 1e-4, "batch_size": 32.0, "eval_loss": 0.6, "resident": 512e6,
            "metric/accuracy": 0.85, "metric/throughput_samples_per_sec": 900.0, "metric/gpu_utilization": 0.9,
            "metric/reward": -3.0, "timestamp": now.timestamp(),
        }
    }  # fmt: skip
    assert all(name in SCALARS or name.startswith("metric/") for name in by_hand.steps[100] if name != "timestamp")
    other, second = made()
    other.record_performance(training_step=100, loss=torch.tensor(0.5), accuracy=np.float32(0.5), reward=np.array(1.0))
    assert second.steps == {100: {"loss": 0.5, "loss_nonfinite": 0.0, "metric/accuracy": 0.5, "metric/reward": 1.0}}


def test_a_loss_that_is_nan_is_recorded_as_one_and_ends_the_health():
    part, by_hand = made()
    for step in range(30):
        part.record_performance(training_step=step, loss=math.nan if step > 15 else 2.0 - step / 10)
    assert by_hand.steps[20]["loss_nonfinite"] == 1.0
    assert part.analyze_training_dynamics().state == "diverged"
    assert part.assess_health().score <= 50
    assert any(one.kind == "nonfinite" for one in part.detect_anomalies())


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"training_step": -1},
        {"training_step": 1.5},
        {"training_step": 0, "loss": "low"},
        {"training_step": 0, "loss": np.zeros(3)},
        {"training_step": 0, "batch_size": 0},
        {"training_step": 0, "batch_size": 2.5},
        {"training_step": 0, "memory_usage_mb": -1},
        {"training_step": 0, "metrics": {"loss": 1.0}},
        {"training_step": 0, "metrics": {"": 1.0}},
        {"training_step": 0, "metrics": {3: 1.0}},
        {"training_step": 0, "metrics": [1.0]},
        {"training_step": 0, "timestamp": "now"},
    ],
)
def test_wrong_numbers_of_a_step_are_refused_and_nothing_is_recorded(values):
    part, by_hand = made()
    with pytest.raises(ConfigError):
        part.record_performance(**values)
    assert by_hand.steps == {}


def test_metrics_and_keywords_at_once_are_refused():
    with pytest.raises(ConfigError):
        made()[0].record_performance(ModelPerformanceMetrics(training_step=0), loss=1.0)
    with pytest.raises(ConfigError):
        made()[0].record_performance({"loss": 1.0})


# ---------------------------------------------------------------- answers


def test_nothing_recorded_is_not_enough_data():
    part, _ = made()
    assert part.analyze_training_dynamics().state == "not enough data"
    assert part.assess_health().score is None
    assert part.detect_anomalies() == part.recommendations() == ()
    assert part.analyze_architecture().total_parameters is None
    assert part.summary().count("not enough data") >= 2


def train_by_hand(part, rate, steps=300):
    """A linear regression in numpy alone, by gradient descent."""
    rng = np.random.default_rng(0)
    truth, weights = rng.normal(size=8), np.zeros(8)
    test = rng.normal(size=(256, 8))
    part.record_architecture(ModelArchitectureInfo.of({"linear": {"weight": weights}}, dataset_samples=32 * steps))
    for step in range(steps):
        x = rng.normal(size=(32, 8))
        error = x @ weights - x @ truth + rng.normal(0, 0.3, 32)
        held = float(np.mean((test @ weights - test @ truth) ** 2)) + 0.09
        part.record_performance(
            training_step=step, loss=float(np.mean(error**2)), learning_rate=rate, batch_size=32,
            **({"validation_loss": held} if step % 25 == 24 else {}),
        )  # fmt: skip
        weights -= rate * 2 * x.T @ error / 32


def test_a_training_in_numpy_alone_is_judged_good_and_a_diverging_one_bad():
    good, bad = made()[0], made()[0]
    train_by_hand(good, 0.01)
    with np.errstate(all="ignore"):
        train_by_hand(bad, 1.5, steps=80)  # until the loss is about 1e70
    health = good.assess_health()
    assert health.score >= 90
    assert health.dynamics.gap is not None
    assert not health.dynamics.gap.overfits
    assert "different samples for each parameter" in health.parameters.text
    assert health.parameters.judged
    worse = bad.assess_health()
    assert worse.score <= 50
    assert worse.dynamics.state == "diverged"
    assert bad.summary()


def test_parameters_are_judged_only_where_something_sound_can_be_said():
    part, _ = made()
    part.record_architecture(ModelArchitectureInfo(total_parameters=125_000_000, dataset_samples=50_000))
    for step in range(60):
        part.record_performance(training_step=step, loss=2 - step / 60, batch_size=8)
    found = part.analyze_architecture().efficiency
    assert not found.judged
    assert "cannot be judged" in found.text
    assert "Zhang" in found.text
    assert "Chinchilla" not in found.text
    assert found.samples_seen == 480
    # With evaluations that come apart from the training it is the measured gap that judges.
    for step in range(60):
        if step % 5 == 4:
            part.record_performance(training_step=step, validation_loss=1.2 + ((step - 20) / 40) ** 2)
    found = part.analyze_architecture().efficiency
    assert found.judged
    assert "too many parameters for the data" in found.text
