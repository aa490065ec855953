"""Names of parameters in the ways of several frameworks, and nested arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from neuraldbg.errors import ConfigError
from neuraldbg.toolbox.layer_shapes import Shaped, layer_type
from neuraldbg.toolbox.parameter_names import leaves, owner_of


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("fc1.weight", ("fc1", "weight", "weight")),
        ("layers.0.attention.query.bias", ("layers.0.attention.query", "bias", "bias")),
        ("lstm.weight_hh_l0", ("lstm", "weight_hh_l0", "weight_hh_l0")),
        ("sequential/dense/kernel", ("sequential/dense", "weight", "kernel")),
        ("gru/recurrent_kernel", ("gru", "recurrent_weight", "recurrent_kernel")),
        ("dense/kernel:0", ("dense", "weight", "kernel")),
        ("['params']['Dense_0']['kernel']", ("params/Dense_0", "weight", "kernel")),
        ("batch_norm/gamma", ("batch_norm", "weight", "gamma")),
        ("batch_norm/beta", ("batch_norm", "bias", "beta")),
        ("layer_1", ("layer_1", "weight", "layer_1")),
        ("W1", ("W1", "weight", "W1")),
        ("b1", ("b1", "bias", "b1")),
        ("encoder/0/w", ("encoder/0", "weight", "w")),
        ("block.0", ("block.0", "weight", "block.0")),
        ("", ("", "weight", "")),
    ],
)
def test_the_layer_and_the_parameter_of_a_name(name, meant):
    assert owner_of(name) == meant


class Pair(NamedTuple):
    first: object
    second: object


@dataclass
class Block:
    scale: object
    shift: object = None


def test_nested_arrays_are_named_by_their_path():
    one = np.ones(2)
    tree = {"a": {"w": one, "b": one}, "c": [one, one], "d": Pair(one, {"e": one}), "f": Block(one), "g": [1.0, 2.0]}
    assert [name for name, _ in leaves(tree, "gradients")] == [
        "a/w", "a/b", "c/0", "c/1", "d/first", "d/second/e", "f/scale", "g",
    ]  # fmt: skip


def test_an_array_without_a_name_is_refused():
    with pytest.raises(ConfigError, match=r"gradients: give arrays by name, .* not a ndarray"):
        list(leaves(np.ones(3), "gradients"))


def test_a_value_that_holds_itself_ends():
    tree = {"a": {}}
    tree["a"]["a"] = tree
    with pytest.raises(ConfigError, match="nested more than 32 levels"):
        list(leaves(tree, "gradients"))


def given(name, shape, framework="numpy"):
    return Shaped(name, shape, framework)


@pytest.mark.parametrize(
    ("parameters", "meant"),
    [
        ({"weight": given("weight", (16, 8), "torch")}, ("Linear", {"in_features": 8, "out_features": 16})),
        ({"weight": given("kernel", (8, 16))}, ("Linear", {"in_features": 8, "out_features": 16})),
        # The bias tells which axis has the outputs, whatever the framework.
        (
            {"weight": given("W", (16, 8)), "bias": given("b", (16,))},
            ("Linear", {"in_features": 8, "out_features": 16}),
        ),
        ({"weight": given("kernel", (3, 3, 8, 16))}, ("Conv2d", {"in_channels": 8, "out_channels": 16})),
        ({"weight": given("weight", (16, 8, 3), "torch")}, ("Conv1d", {"in_channels": 8, "out_channels": 16})),
        ({"weight": given("embeddings", (100, 8))}, ("Embedding", {"num_embeddings": 100, "embedding_dim": 8})),
        ({"weight": given("gamma", (8,)), "bias": given("beta", (8,))}, ("Norm", {})),
        ({"weight": given("weight", (8,), "torch")}, ("Layer", {})),
        ({"weight": given("kernel", (8, 32)), "recurrent_weight": given("recurrent_kernel", (8, 32))}, ("RNN", {})),
        ({"bias": given("bias", (8,))}, ("Layer", {})),
        ({}, ("Layer", {})),
    ],
)
def test_the_kind_of_a_layer(parameters, meant):
    assert layer_type(parameters) == meant
