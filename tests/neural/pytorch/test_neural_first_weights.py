"""First weights are drawn as Keras draws them: the spread and the ends of many."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch

from neural import NeuralError, checked, compile_plan, load, parse

KERAS = """
import json, sys
import keras, numpy as np
from keras import layers
from keras.layers import *
found = {}
for text, (shape, name) in json.loads(sys.argv[1]).items():
    kind, _, words = text.partition("(")
    words = words.replace("true", "True").replace("false", "False")
    layer = eval(f"layers.{kind}({words}")
    layer.build((None, *shape))
    kernel = np.array(next(each for each in layer.weights if each.name == name))
    found[text] = [float(kernel.std()), float(np.quantile(abs(kernel), 0.999)), kernel.size]
print(json.dumps(found))
"""
KERNELS = {
    f'{layer}, {what}_initializer="{name}")': (shape, what)
    for name in ("he_normal", "he_uniform", "glorot_normal", "lecun_normal", "lecun_uniform")
    for layer, what, shape in (
        ("Dense(300", "kernel", (200,)),
        ("Conv2D(64, 3", "kernel", (8, 8, 48)),
        ("Conv2D(64, 3, groups=4", "kernel", (8, 8, 48)),
        ("Conv2DTranspose(64, 3", "kernel", (8, 8, 48)),
        ("DepthwiseConv2D(5, depth_multiplier=4", "depthwise", (8, 8, 96)),
        ("Embedding(500, 32", "embeddings", (4,)),
    )
}
RECURRENT = {
    f'LSTM(64, {what}_initializer="{name}")': ((5, 96), name_)
    for name in ("he_normal", "glorot_normal", "lecun_uniform")
    for what, name_ in (("kernel", "kernel"), ("recurrent", "recurrent_kernel"))
}
NAMES = {"depthwise": "kernel", "embeddings": "embeddings", "kernel": "kernel"}


@pytest.fixture(scope="module")
def keras(tmp_path_factory):
    """Return spread, a value that one in a thousand exceeds, and size of the weights of each layer in Keras."""
    folder = str(tmp_path_factory.mktemp("keras"))
    asked = {text: (shape, NAMES.get(name, name)) for text, (shape, name) in {**KERNELS, **RECURRENT}.items()}
    done = subprocess.run(
        [sys.executable, "-c", KERAS, json.dumps(asked)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env={**os.environ, "KERAS_BACKEND": "torch", "KERAS_HOME": folder},
    )
    return json.loads(done.stdout)


def weights_of(text, shape):
    given = f"({', '.join(map(str, shape))},)"
    file = f"network Model {{ input: {given} layers: {text} loss: mse optimizer: SGD }}"
    torch.manual_seed(0)
    return dict(load(compile_plan(checked(parse(file)))).Model().named_parameters())


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras is not installed")
@pytest.mark.parametrize("text", [*KERNELS, *RECURRENT])
def test_weights_are_spread_as_in_keras(text, keras):
    shape, name = {**KERNELS, **RECURRENT}[text]
    part = {"kernel": "weight_ih", "recurrent_kernel": "weight_hh"}[name] if text in RECURRENT else "weight"
    found = next(value for key, value in weights_of(text, shape).items() if key.rpartition(".")[2].startswith(part))
    std, largest, size = keras[text]
    assert found.numel() == size
    assert found.std().item() == pytest.approx(std, rel=0.05)
    # Keras's own draws go beyond two deviations a few times in a million.
    assert found.detach().abs().flatten().quantile(0.999).item() == pytest.approx(largest, rel=0.05)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('LSTM(3, bias_initializer="ones")', "has a bias_initializer"),
        ('GRU(3, bias_initializer="nonsense")', "bias_initializer"),
        ('Bidirectional(LSTM(4, kernel_regularizer="l2"))', "has a kernel_regularizer"),
        ("Bidirectional(LSTM(4, trainable=false))", "has trainable=false inside of it"),
    ],
)
def test_what_is_not_built_is_refused(text, words):
    with pytest.raises(NeuralError, match=words):
        weights_of(text, (5, 4))
