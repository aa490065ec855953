"""A Keras file and a PyTorch file of the same network: parameters, shapes, and outputs of the same weights."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.neural.keras_code import comparison
from tests.neural.keras_code.other_networks import KERAS_ONLY, NETWORKS, text
from tests.neural.pytorch.keras_networks import TWINS
from tests.neural.pytorch.keras_training import LOSSES, OPTIMIZERS, SCHEDULES
from tests.neural.sample_files import CNN, MODELS

from neural import checked, compile_plan, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("keras files"),  # one process computes for all of them
    pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras is not installed"),
]

UNTRAINED = ("projected", "residual")
"""torch 2.13 corrupts memory in the backward pass of a convolution of 1x1 as Keras calls it."""
FILES = {
    **{f"twin_{name}": f"network A {{ input: {each.shape} layers: {each.layers} }}" for name, each in TWINS.items()},
    **{f"other_{name}": text(*each) for name, each in NETWORKS.items()},
    **{f"file_{name}": each for name, each in MODELS.items()},
}
PARTS = {
    **{
        f"loss {loss}": f'network A {{ input: (4,) layers: Dense(3) Dense(3, "{activation}") loss: {loss} }}'
        for loss, (activation, _, _) in LOSSES.items()
    },
    **{
        f"optimizer {each}": f"network A {{ input: (4,) layers: Dense(3) loss: mse optimizer: {each} }}"
        for each in OPTIMIZERS
    },
    **{
        f"schedule {each}": f"network A {{ input: (4,) layers: Dense(3) loss: mse optimizer: SGD lr_schedule: {each} }}"
        for each in (*SCHEDULES, "StepDecay(0.1, 1, 0.5)")
    },
}
ALL_METRICS = """network A { input: (4,) layers: Dense(3, "softmax") loss: "%s"
  metrics: ["accuracy", "auc", "binary_accuracy", "categorical_accuracy", "categorical_crossentropy",
    "cosine_similarity", "f1", "hinge", "kl_divergence", "mae", "mse", "perplexity", "precision", "r2_score", "recall",
    "rmse", "top_k_accuracy", "sparse_categorical_accuracy", "loss", "binary_crossentropy"] }"""
METRICS = {each: ALL_METRICS % each for each in ("sparse_categorical_crossentropy", "categorical_crossentropy", "mse")}
SETTINGS = {
    "settings": """network A { input: (4,) layers: Dense(3) Output(2, "softmax") loss: "categorical_crossentropy"
      optimizer: SGD(0.1, clipvalue=0.5)
      train { mixed_precision: true early_stopping: 2 shuffle: false seed: 3 validation_split: 0 } }""",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Return what all networks have and give, computed by one process with Keras on torch."""
    folder = tmp_path_factory.mktemp("keras")
    work = [{"file": each, "name": name} for name, each in FILES.items()]
    work += [{"file": text(*each), "name": name, "train": True} for name, each in KERAS_ONLY.items()]
    trained = {**PARTS, **METRICS, **SETTINGS}
    work += [{"file": each, "name": name, "train": True} for name, each in trained.items()]
    work += [{"file": FILES[name], "name": f"train {name}", "train": True} for name in TRAINED]
    (folder / "work.json").write_text(json.dumps(work), encoding="utf-8")
    environment = {**os.environ, "KERAS_BACKEND": "torch", "KERAS_HOME": str(folder)}
    command = [sys.executable, str(Path(comparison.__file__)), str(folder / "work.json"), str(folder / "found.json")]
    subprocess.run(command, check=True, env=environment, timeout=550)
    found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return {each["name"]: each for each in found}


TRAINED = (
    "file_attention",
    "file_named_inputs",
    "other_noise",
    "other_images_by_gru",
    "other_steps_of_blocks",
    "twin_gru",
)


@pytest.mark.parametrize("name", FILES)
def test_same_model_as_the_pytorch_file(name: str, results: Mapping[str, Any]) -> None:
    found = results[name]
    assert "error" not in found, found
    assert found["keras"] == found["torch"] == found["planned"] == found["copied"]
    plan = checked(parse(FILES[name], name))
    assert found["shape"] == list(plan.layers[-1].shape)
    assert found["difference"] < 1e-5


@pytest.mark.parametrize("name", KERAS_ONLY)
def test_layers_that_keras_alone_has(name: str, results: Mapping[str, Any]) -> None:
    found = results[name]
    assert "error" not in found, found
    assert found["keras"] == found["planned"]
    assert "torch_refused" in found
    assert np.isfinite(found["loss"]).all()


@pytest.mark.parametrize("name", [*(f"train {each}" for each in TRAINED), *METRICS, *SETTINGS])
def test_it_trains(name: str, results: Mapping[str, Any]) -> None:
    assert "error" not in results[name], results[name]
    assert np.isfinite(results[name]["loss"]).all()


@pytest.mark.parametrize("name", PARTS)
def test_losses_optimizers_and_schedules(name: str, results: Mapping[str, Any]) -> None:
    found = results[name]
    assert "error" not in found, found
    assert found["losses"][0] == pytest.approx(found["losses"][1], rel=1e-5, abs=1e-6)
    plan = checked(parse(PARTS[name], name))
    known = {key: each for key, each in plan.optimizer.parameters.items() if key in found["optimizer"]}
    if name.startswith("optimizer"):
        assert {key: found["optimizer"][key] for key in known} == pytest.approx(known)
        assert len(known) >= 4
    if name.startswith("schedule"):
        assert len(set(found["rates"])) > 1, found


# ---------------------------------------------------------------- the file as a program


@pytest.fixture
def program(tmp_path: Path) -> Path:
    plan = checked(parse(CNN.replace("(28, 28, 1)", "(8, 8, 1)").replace("batch_size: 64", "save_path: 'w.pt'"), "a"))
    (tmp_path / "model.py").write_text(compile_plan(plan, backend="jax"), encoding="utf-8")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 60)
    np.savez(tmp_path / "data.npz", x=rng.normal(0, 0.1, (60, 8, 8, 1)) + y[:, None, None, None], y=y)
    return tmp_path


def run(folder: Path, *words: str, backend: str = "torch") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KERAS_BACKEND": backend, "KERAS_HOME": str(folder)}
    command = [sys.executable, "model.py", "--data", "data.npz", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_command_line_of_the_pytorch_file(program: Path) -> None:
    words = ("--epochs", "2", "--batch-size", "7", "--seed", "4", "--device", "cpu")
    done = [run(program, *words) for _ in range(2)]
    assert done[0].returncode == 0, done[0].stderr
    assert done[0].stdout == done[1].stdout
    number = r"\d+\.\d{4}"
    line = rf"epoch \d/2: accuracy {number}, loss {number}, val_accuracy {number}, val_loss {number}\n"
    assert re.fullmatch(line * 2, done[0].stdout)
    assert (program / "w.weights.h5").exists()
