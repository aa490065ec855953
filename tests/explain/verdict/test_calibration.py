"""The map from evidence to probability: what the file must hold, what comes out of it, and how it is fitted."""

from __future__ import annotations

import json
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from neuraldbg.errors import ConfigError
from neuraldbg.explain import CAUSES, Tier
from neuraldbg.explain.verdict.calibration import FILE, fitted, parse, sigmoid

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
TIERS = [tier.name.lower() for tier in Tier]


@pytest.fixture
def body():
    return json.loads(resources.files("neuraldbg.explain.verdict").joinpath(FILE).read_text(encoding="utf-8"))


@pytest.fixture
def fitting(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import accuracy_fit

    yield accuracy_fit
    sys.modules.pop("accuracy_fit", None)


def test_the_file_comes_with_the_package_and_is_whole():
    assert set(fitted().prior) == set(fitted().cap) == set(TIERS)
    assert set(fitted().offset) <= {cause.id for cause in CAUSES}
    assert max(fitted().cap.values()) <= 0.98


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slope", 0.0),
        ("slope", -1.0),
        ("schema", "neuraldbg.calibration/2"),
        ("prior", {"certain": 0.0}),
        ("cap", dict.fromkeys(TIERS, 1.0)),
        ("cap", dict.fromkeys(TIERS, 0.2)),
        ("offset", {"lr_too_high": "high"}),
    ],
)
def test_a_damaged_file_is_an_error_that_says_so(body, field, value):
    body[field] = value
    with pytest.raises(ConfigError, match=r"calibration\.json is damaged"):
        parse(json.dumps(body))


def test_an_unknown_entry_is_an_error(body):
    with pytest.raises(ConfigError, match="surprise"):
        parse(json.dumps(body | {"surprise": 1}))


@pytest.mark.parametrize("tier", Tier)
def test_more_evidence_never_means_less_confidence_and_never_more_than_the_cap(tier):
    now = [fitted().probability(tier, fitted().log_odds(tier, "no_such_cause", e)) for e in np.linspace(-5, 20, 60)]
    assert now == sorted(now)
    assert now[-1] <= fitted().cap[tier.name.lower()] < 1


def test_a_cause_that_was_not_seen_in_fitting_gets_its_tiers_numbers(body):
    body |= {"slope": 0.5, "most": 6.0, "prior": dict.fromkeys(TIERS, -2.0), "offset": {"dead_relu": 1.0}}
    one = parse(json.dumps(body))
    assert one.log_odds(Tier.SPECIFIC, "bad_batch", 4.0) == pytest.approx(0.0)
    assert one.log_odds(Tier.SPECIFIC, "dead_relu", 4.0) == pytest.approx(1.0)
    assert one.log_odds(Tier.SPECIFIC, "bad_batch", 9.0) == pytest.approx(1.0)  # cut at 6
    assert one.log_odds(Tier.SPECIFIC, "bad_batch", 9.0, taken=4.0) == pytest.approx(-1.0)


def observations(fitting, tier, cause, evidence, right):
    return [fitting.Observation(tier, cause, float(e), 0.0, bool(r)) for e, r in zip(evidence, right, strict=True)]


def test_the_fit_finds_the_frequencies_that_made_its_data(fitting):
    random = np.random.default_rng(0)
    evidence = random.uniform(0, 6, 4000)
    right = random.random(4000) < 1 / (1 + np.exp(-(1.2 * evidence - 4.0)))
    found = fitting.fit(observations(fitting, "specific", "bad_batch", evidence, right))
    assert found["slope"] == pytest.approx(1.2, abs=0.1)
    prior = found["prior"]["specific"] + found["offset"]["bad_batch"]
    assert prior == pytest.approx(-4.0, abs=0.4)
    for at in (2.0, 3.0, 5.0):
        claimed = sigmoid(found["slope"] * at + prior)
        near = np.abs(evidence - at) < 0.25
        assert claimed == pytest.approx(right[near].mean(), abs=0.08)


def test_few_samples_move_a_cause_by_little_and_cap_what_it_may_claim(fitting):
    some = observations(fitting, "specific", "bad_batch", [6.0] * 3, [True] * 3)
    found = fitting.fit(some)
    assert abs(found["offset"]["bad_batch"]) < 0.5
    overall = 4 / 5  # three right, and one right and one wrong added
    assert found["cap"]["specific"] == pytest.approx((3 + 10 * overall) / 13, abs=1e-3)
    assert found["cap"]["palliative"] == pytest.approx(overall)


def test_a_cause_that_cries_wolf_gets_a_negative_offset(fitting):
    wolf = observations(fitting, "statistical", "dead_relu", [5.0] * 40, [False] * 30 + [True] * 10)
    sound = observations(fitting, "statistical", "vanishing_depth", [5.0] * 40, [True] * 38 + [False] * 2)
    found = fitting.fit(wolf + sound)
    assert found["offset"]["dead_relu"] < -0.4 < 0.4 < found["offset"]["vanishing_depth"]
    assert found["slope"] > 0


def test_the_same_answers_give_the_same_numbers(fitting):
    some = observations(fitting, "certain", "double_softmax", [6.5, 6.5, 2.0], [True, True, False])
    assert fitting.fit(some) == fitting.fit(list(some))
