"""A model built from a file, and the same by hand in Keras: parameters, shapes, and outputs of the same weights."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tests.neural.pytorch import keras_networks
from tests.neural.pytorch.keras_networks import TWINS
from tests.neural.pytorch.keras_weights import put_layer

from neural import checked, compile_plan, load, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from neural import LayerPlan

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras is not installed")


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with what the Keras models have and give."""
    folder = tmp_path_factory.mktemp("twins")
    environment = {**os.environ, "KERAS_BACKEND": "torch", "KERAS_HOME": str(folder / "home")}
    script = str(Path(keras_networks.__file__))
    subprocess.run([sys.executable, script, str(folder)], check=True, env=environment, timeout=300)
    return folder


def weighted(layers: tuple[LayerPlan, ...], model: nn.Module) -> Iterator[tuple[LayerPlan, nn.Module]]:
    """Return the layers with weights, each with its module, those of blocks included."""
    for layer in layers:
        if not layer.parameter_count:
            continue
        module = getattr(model, layer.name)
        if layer.children and layer.type != "Bidirectional":
            yield from weighted(layer.children, module)
        else:
            yield layer, module


@pytest.mark.parametrize("name", TWINS)
def test_same_model_as_keras(name: str, twins: Path) -> None:
    twin = TWINS[name]
    text = f"network Twin {{ input: {twin.shape} layers: {twin.layers} loss: mse }}"
    plan = checked(parse(text, name))
    model = load(compile_plan(plan, text), name).build_model().eval()
    known = json.loads((twins / f"{name}.json").read_text())
    with np.load(twins / f"{name}.npz") as arrays:
        stored = {key: arrays[key] for key in arrays.files}
    parameters = sum(each.numel() for each in model.parameters())
    buffers = sum(each.numel() for key, each in model.named_buffers() if not key.endswith("num_batches_tracked"))
    assert parameters + buffers == known["parameters"] == plan.parameter_count
    for place, (layer, module) in enumerate(weighted(plan.layers, model)):
        count = sum(key.startswith(f"{place}_") for key in stored)
        put_layer(layer, module, [stored[f"{place}_{at}"] for at in range(count)])
    with torch.no_grad():
        found = model(torch.from_numpy(stored["x"]))
    assert list(found.shape[1:]) == known["shape"] == list(plan.layers[-1].shape)
    assert np.abs(found.numpy() - stored["y"]).max() < 1e-5 * max(1.0, np.abs(stored["y"]).max())
