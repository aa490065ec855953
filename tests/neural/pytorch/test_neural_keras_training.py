"""Optimizers, schedules and losses of a built model compute what those of Keras do."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.neural.pytorch import keras_training
from tests.neural.pytorch.keras_training import (
    CLASSES,
    GRADIENTS,
    LOSSES,
    ONE_HOT,
    OPTIMIZERS,
    SCHEDULES,
    SMALL,
    START,
    STEPS,
)

from neural import checked, compile_plan, load, parse

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras is not installed")


@pytest.fixture(scope="module")
def keras(tmp_path_factory):
    """Return what Keras computes."""
    folder = tmp_path_factory.mktemp("keras")
    environment = {**os.environ, "KERAS_BACKEND": "torch", "KERAS_HOME": str(folder)}
    script, found = str(Path(keras_training.__file__)), folder / "found.json"
    subprocess.run([sys.executable, script, str(found)], check=True, env=environment, timeout=300)
    return json.loads(found.read_text())


def module_of(rest, layers="Dense(3)"):
    return load(compile_plan(checked(parse(f"network Model {{ input: (2,) layers: {layers} {rest} }}"))))


class Weight(torch.nn.Module):
    """Hold one weight without any layer."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(START))


def moved(text, scale=1.0):
    """Return the weight after all steps of an optimizer, with its schedule if it has one."""
    model, module = Weight(), module_of(f"loss: mse optimizer: {text}")
    optimizer = module.make_optimizer(model)
    schedule = module.make_schedule(optimizer) if hasattr(module, "make_schedule") else None
    for gradient in GRADIENTS:
        model.weight.grad = torch.tensor(gradient) * scale
        optimizer.step()
        if schedule:
            schedule.step()
    return model.weight.detach()


@pytest.mark.parametrize("text", OPTIMIZERS)
def test_optimizers(text, keras):
    expected = torch.tensor(keras["optimizers"][text])
    assert (moved(text) - expected).abs().max() < 1e-4 * (expected - torch.tensor(START)).abs().max()


@pytest.mark.parametrize("text", SMALL)
def test_optimizers_at_small_gradients(text, keras):
    expected = torch.tensor(keras["small"][text])
    assert (moved(text, 1e-5) - expected).abs().max() < 1e-3 * (expected - torch.tensor(START)).abs().max() + 1e-7


@pytest.mark.parametrize("text", SCHEDULES)
def test_schedules(text, keras):
    module = module_of(f"loss: mse optimizer: SGD(learning_rate={text})")
    optimizer = module.make_optimizer(Weight())
    schedule = module.make_schedule(optimizer)
    found = []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert found == pytest.approx(keras["schedules"][text], rel=1e-5)


@pytest.mark.parametrize("text", LOSSES)
def test_losses(text, keras):
    activation, name, _ = LOSSES[text]
    module = module_of(f"loss: {text}", f'Dense(3) Activation("{activation}")')
    model = module.build_model()
    model.Dense_1 = torch.nn.Identity()
    targets = CLASSES if name.startswith("Sparse") else ONE_HOT
    _, targets = module.tensors({"x": START, "y": targets})
    assert module.loss_function(model(torch.tensor(START)), targets).item() == pytest.approx(
        keras["losses"][text], rel=1e-5
    )


def test_the_loss_of_validation_has_the_regularization_as_that_of_training_has():
    module = module_of("loss: mse optimizer: SGD", layers="Dense(1, kernel_regularizer=l2(10.0))")
    torch.manual_seed(0)
    model, inputs, targets = module.Model(), torch.randn(8, 2), torch.randn(8, 1)
    found = module.evaluate(model, torch.utils.data.TensorDataset(inputs, targets), 4, "cpu")["loss"]
    errors = (model(inputs) - targets).pow(2).mean()
    assert found == pytest.approx((errors + 10.0 * model.Dense_1.weight.pow(2).sum()).item(), rel=1e-5)
