"""Gradients by hand: states of the live tool's detectors, trends against scipy, units without a gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from neuraldbg import debug_session
from neuraldbg.errors import ConfigError


def flow_of(gradients, loss=None, **settings):
    """The analysis of gradients by name, each a list over steps."""
    session = debug_session(**settings)
    steps = len(next(iter(gradients.values())))
    for step in range(steps):
        found = {name: of[step] for name, of in gradients.items()}
        session.record_step(step, loss=None if loss is None else loss(step), gradients=found)
    return session.stop().gradients


DRAW = np.random.default_rng(0)


def noise(scale, steps=60, shape=(6, 5)):
    return [scale * DRAW.normal(size=shape) for _ in range(steps)]


def test_healthy_gradients():
    flow = flow_of({"a.weight": noise(0.1), "b.weight": noise(0.2)}, loss=lambda step: 1 / (1 + step))
    assert flow.overall_health == "healthy"
    assert {one.state for one in flow.layers.values()} == {"healthy"}
    assert flow.advice == ()


@pytest.mark.parametrize(
    ("last", "state"),
    [
        ([np.full((6, 5), math.nan)] * 3, "nonfinite"),
        ([np.full((6, 5), math.inf)] * 3, "nonfinite"),
        ([1e9 * one for one in noise(1.0, 30)], "exploding"),
    ],
)
def test_the_worst_state_of_a_layer_is_that_of_all(last, state):
    course = noise(0.1, 60)
    flow = flow_of({"a.weight": course + last, "b.weight": noise(0.1, 60 + len(last))}, loss=lambda step: 1 + step)
    assert flow.overall_health == state
    assert flow.layers["a.weight"].state == state


def test_a_gradient_that_vanishes_on_the_way_down():
    layers = {f"dense{i}.weight": noise(10.0 ** (i - 10), 60) for i in range(10)}
    flow = flow_of(layers, loss=lambda step: 2.3 + 0.001 * math.sin(step))
    assert flow.overall_health == "vanishing"
    assert flow.layers["dense0.weight"].state == "vanishing"
    assert flow.layers["dense9.weight"].state == "healthy"
    assert any("vanishing_depth" in one for one in flow.advice)


def test_a_layer_without_a_gradient():
    flow = flow_of({"a.weight": [np.zeros((6, 5))] * 40, "b.weight": noise(0.1, 40)}, loss=lambda _: 1.0)
    assert flow.layers["a.weight"].state == "zero"
    assert flow.overall_health == "zero"


@pytest.mark.parametrize("records", [1, 5, 9])
def test_a_few_gradients_are_not_called_healthy(records):
    flow = flow_of({"a.weight": noise(0.1, records)})
    assert flow.overall_health == "not enough data"
    assert flow.layers["a.weight"].trend in (["not enough data"] if records < 8 else ["no trend", "steady"])


@pytest.mark.parametrize(("factor", "trend"), [(1.05, "growing"), (0.93, "shrinking"), (1.0, "steady")])
def test_a_trend_and_its_rate(factor, trend):
    draw = np.random.default_rng(1)
    norms = [float(factor**step * math.exp(0.005 * draw.normal())) for step in range(100)]
    layer = flow_of({"a": [[norm] for norm in norms]}, max_gradient_history=50).layers["a"]
    oracle = stats.theilslopes(np.log10(norms[-50:]), np.arange(50)).slope
    assert layer.trend == trend
    assert layer.rate == pytest.approx(10**oracle, rel=1e-9)
    assert layer.median_norm == pytest.approx(np.median(norms[-50:]))
    assert layer.records == 100


def test_noise_has_no_trend():
    draw = np.random.default_rng(2)
    wrong = 0
    for _ in range(30):
        layer = flow_of({"a": [[math.exp(draw.normal())] for _ in range(60)]}).layers["a"]
        wrong += layer.trend in ("growing", "shrinking")
    assert wrong <= 2


def test_units_without_a_gradient():
    course = noise(0.1, 40, (8, 12))
    for step, one in enumerate(course):
        one[:, :5] = 0  # five columns of twelve
        one[step % 8] = 0  # a row now and then is not dead
    layer = flow_of({"a.weight": course}).layers["a.weight"]
    assert (layer.dead_units, layer.units) == (5, 12)
    assert "5 of 12 units without a gradient" in str(layer)
    layer = flow_of({"a.weight": course[:10]}).layers["a.weight"]
    assert layer.dead_units is None


def test_a_unit_that_comes_back_is_not_dead():
    course = noise(0.1, 60, (8, 4))
    for one in course[:40]:
        one[3] = 0
    assert flow_of({"a.weight": course}).layers["a.weight"].dead_units == 0


def test_gradients_of_any_kind():
    session = debug_session()
    for values in ([0.1, 0.2], torch.tensor([0.1, 0.2], dtype=torch.bfloat16), np.float16([0.1, 0.2]), 0.3, []):
        session.gradient_debugger.record_gradient_flow("a", values)
    with pytest.raises(ConfigError, match="the gradient of 'a' are not numbers"):
        session.gradient_debugger.record_gradient_flow("a", "text")
    with pytest.raises(ConfigError, match="the layer's name: give text"):
        session.gradient_debugger.record_gradient_flow(3, [1.0])
    _, norms = session.gradient_debugger.history("a")
    assert norms == pytest.approx([math.hypot(0.1, 0.2)] * 3 + [0.3, 0.0], rel=1e-2)
    session.stop()


def test_layers_beyond_the_limit_are_counted():
    session = debug_session(max_tracked_tensors=3)
    session.record_step(0, gradients={f"layer{i}": [1.0] for i in range(5)})
    assert session.gradient_debugger.names == ("layer0", "layer1", "layer2")
    assert session.gradient_debugger.left_out == {"layer3", "layer4"}
    session.stop()
