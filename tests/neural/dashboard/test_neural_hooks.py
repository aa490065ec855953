"""``neural.dashboard.hooks`` as document 002 writes it, over a real training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src"
EXAMPLE = """
from neural.dashboard.hooks import register_hook

@register_hook('after_layer')
def inspect_activations(layer_name, activations):
    print(f"{layer_name}: mean={activations.mean()}")
"""
TRAINING = """
import torch
from neuraldbg import NeuralDbg

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(4, 2)
with torch.no_grad():
    means = [model[0](x).mean(), model(x).mean()]
with NeuralDbg(model, optimizer, out=None):
    model(x).pow(2).mean().backward()
    optimizer.step()
print("expected", *[float(one) for one in means])
"""


def test_the_example_of_the_document_works_as_written(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLE + TRAINING], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *seen, expected = done.stdout.splitlines()
    assert [line.split(": mean=")[0] for line in seen[:2]] == ["0", "1"]
    wanted = [float(word) for word in expected.split()[1:]]
    assert [float(line.split("=")[1]) for line in seen[:2]] == pytest.approx(wanted, rel=1e-6)


def test_it_is_the_function_of_neuraldbg_and_is_loaded_late():
    code = "import sys, neural.dashboard.hooks as h; print('neuraldbg' in sys.modules, 'torch' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
    import neuraldbg
    from neural.dashboard import hooks

    assert hooks.register_hook is neuraldbg.register_hook
    with pytest.raises(AttributeError, match="has no attribute 'unregister'"):
        hooks.unregister  # noqa: B018
