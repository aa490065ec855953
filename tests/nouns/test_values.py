"""The values: names of layers, order by data flow, series, strict JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from neuraldbg.errors import NeuralDbgError, UnknownLayer
from neuraldbg.layer_alias import resolve
from neuraldbg.nouns import Diagnosis, Edge, Event, Hypothesis, Layer, Layout, Series, Site, jsonable


def layers(*pairs: tuple[str, str]) -> tuple[Layer, ...]:
    return tuple(Layer(path, kind, "Net", leaf=True, params=("weight",)) for path, kind in pairs)


LAYOUT = Layout(
    layers=layers(("stem.0", "Conv2d"), ("stem.1", "BatchNorm2d"), ("body.fc", "Linear"), ("head", "Linear")),
)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("head", "head"),
        ("conv1", "stem.0"),
        ("Conv2d_1", "stem.0"),
        ("bn1", "stem.1"),
        ("linear1", "body.fc"),
        ("Dense_2", "head"),
        ("fc2", "head"),
        ("head.weight", "head"),
    ],
)
def test_a_layer_is_found_by_path_or_by_type_and_ordinal(name: str, path: str) -> None:
    assert resolve(LAYOUT, name) == path


def test_an_exact_path_comes_before_an_ordinal() -> None:
    layout = Layout(layers=layers(("fc2", "Linear"), ("fc1", "Linear")))
    assert resolve(layout, "fc1") == "fc1"
    assert resolve(layout, "linear1") == "fc2"


@pytest.mark.parametrize("name", ["hed", "linear3", "conv0", "body.fk"])
def test_an_unknown_layer_names_the_nearest(name: str) -> None:
    with pytest.raises(UnknownLayer, match="no layer is called") as caught:
        resolve(LAYOUT, name)
    assert isinstance(caught.value, (KeyError, NeuralDbgError))
    assert caught.value.suggestions
    assert "Did you mean" in str(caught.value)


def test_depth_follows_the_data_before_the_order_of_calls() -> None:
    layout = Layout(
        layers=layers(("late", "Linear"), ("early", "Linear"), ("out", "Linear")),
        edges=(Edge("early", "late"), Edge("late", "out"), Edge("out", "loss")),
    )
    assert layout.depth == {"early": 0, "late": 1, "out": 2}


def test_depth_of_a_recurrent_model_still_orders_every_layer() -> None:
    layout = Layout(layers=layers(("a", "Linear"), ("b", "Linear")), edges=(Edge("a", "b"), Edge("b", "a")))
    assert layout.depth == {"a": 0, "b": 1}


def test_rows_by_kind_layer_and_name() -> None:
    sites = (Site("param", "head", 0, "weight"), Site("activation", "head"), Site("param", "head", 0, "bias"))
    layout = Layout(LAYOUT.layers, sites)
    assert layout.rows("param") == (0, 2)
    assert layout.rows("param", "head", "bias") == (2,)
    assert layout.rows("activation", "stem.0") == ()


def test_a_series_knows_what_stands_for_a_step() -> None:
    series = Series(np.array([0, 16, 17]), np.array([1.0, 2.0, math.nan]), np.array([16, 1, 1]))
    assert series.at(7) == 1.0
    assert series.at(16) == 2.0
    assert math.isnan(series.at(99))
    assert len(series.finite()) == 2
    assert series.between(16, 20).steps.tolist() == [16, 17]


def test_json_is_strict() -> None:
    event = Event("nonfinite_loss", "loss", 1, 2, details={"value": math.nan, "worst": -math.inf, "n": np.int64(3)})
    hypothesis = Hypothesis("lr_too_high", "optimisation", 0.87, "steps that overshoot", layer="fc1", step=3)
    diagnosis = Diagnosis("failing", "x", events=(event,), hypotheses=(hypothesis,), run={"array": np.ones(2)})

    def forbidden(constant: str) -> None:
        raise AssertionError(constant)

    body = json.loads(diagnosis.to_json(), parse_constant=forbidden)
    assert body["schema"] == "neuraldbg.diagnosis/1"
    assert body["events"][0]["details"] == {"value": "NaN", "worst": "-Infinity", "n": 3}
    assert body["hypotheses"][0]["verification"] is None
    assert body["run"]["array"] == [1.0, 1.0]
    assert jsonable({1, 2}) == [1, 2]


def test_a_hypothesis_prints_as_a_sentence() -> None:
    hypothesis = Hypothesis(
        "vanishing_depth",
        "architecture",
        0.866,
        "a saturating stack",
        layer="linear1",
        step=234,
        failure="gradient vanishing",
    )
    assert str(hypothesis) == (
        "Gradient vanishing originated in layer 'linear1' at step 234, likely due to a saturating stack "
        "(confidence: 0.87)"
    )


def test_verdicts_are_ordered() -> None:
    assert Diagnosis("failing", "").worse_or_equal("suspect")
    assert Diagnosis("suspect", "").worse_or_equal("suspect")
    assert not Diagnosis("inconclusive", "").worse_or_equal("suspect")


def test_an_event_names_the_parameter_that_it_is_about():
    made = partial(Event, transition="gradient_health", first_step=6, last_step=9, layer="fc")
    assert made("vanishing_gradients", site="param_grad/fc").place == "fc"
    assert made("vanishing_gradients", site="param_grad/fc", details={"parameters": ["fc.weight"]}).place == "fc.weight"
    several = made("vanishing_gradients", site="param_grad/fc", details={"parameters": ("fc.w", "fc.v", "fc.u")})
    assert several.place == "fc.w and 2 more"
    assert str(made("unchanged_parameters", site="update/fc.weight")).startswith(
        "unchanged parameters in fc.weight from"
    )
    assert Event("loss_spike", "loss", 1, 2).place == ""


def test_only_what_the_first_cause_explains_leads():
    events = (
        Event("dead_units", "activation_regime", 260, 371, "enc.3", confidence=0.62),
        Event("loss_spike", "loss", 30, 31),
        Event("gradient_spike", "gradient_health", 12, 13, "head", confidence=0.4),
        Event("gradient_spike", "gradient_health", 20, 21, "fc"),
        Event("gradient_spike", "gradient_health", 1, 2, "early"),
    )
    cause = Hypothesis("x", "loss", 0.9, "x", step=5, explains=("gradient_spike", "loss_spike"))
    judged = Diagnosis("suspect", "x", events=events, hypotheses=(cause,))
    assert [e.first_step for e in judged.effects] == [20, 30]  # not another's, not unsure, not over before the cause
    assert [e.first_step for e in replace(judged, hypotheses=()).effects] == [1, 20, 30, 260]
    assert replace(judged, verdict="healthy").effects == ()
