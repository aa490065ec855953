"""Loss spike, divergence and plateau: what must fire, when, with which numbers, and what must stay silent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.step_stream import Stream, chain, decay, feed, losses

from neuraldbg.detect.loss_divergence import LossDivergence
from neuraldbg.detect.loss_plateau import LossPlateau
from neuraldbg.detect.loss_spike import LossSpike

ALL = (LossSpike, LossDivergence, LossPlateau)
LAYOUT = chain(2)


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("detector", ALL)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    offset=st.sampled_from([0.0, -5.0, 100.0, -2.3]),
    noise=st.sampled_from([0.0, 0.02, 0.1]),
)
def test_healthy_descent_is_silent_at_any_level(detector, seed, offset, noise):
    values = decay(300) + offset + noise * rng(seed).standard_normal(300)
    assert [e for e in feed(detector(), LAYOUT, losses(values)) if e.confidence > 0.4] == []


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), sigma=st.sampled_from([0.3, 1.0, 1.5]))
def test_heavy_tailed_positive_noise_is_no_spike_and_no_divergence(seed, sigma):
    values = np.exp(sigma * rng(seed).standard_normal(500))
    assert feed(LossSpike(), LAYOUT, losses(values)) == []
    assert feed(LossDivergence(), LAYOUT, losses(values)) == []


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_policy_gradient_losses_around_zero_are_silent(seed):
    values = 0.3 * rng(seed).standard_normal(600) - 0.05
    for detector in ALL:
        assert feed(detector(), LAYOUT, losses(values)) == []


def test_lasting_spike_has_first_and_last_step_and_the_oracle_level():
    values = 1.0 + 0.02 * rng(0).standard_normal(200)
    values[120:126] = 4.0
    (event,) = feed(LossSpike(), LAYOUT, losses(values))
    assert (event.first_step, event.last_step, event.kind) == (120, 125, "loss_spike")
    assert event.details["level"] == pytest.approx(np.median(values[:120]), abs=0.01)
    assert event.confidence == 0.9


def test_lone_spike_is_less_sure_and_needs_a_batch():
    values = 1.0 + 0.02 * rng(0).standard_normal(200)
    values[150] = 9.0
    (event,) = feed(LossSpike(), LAYOUT, losses(values))
    assert (event.first_step, event.last_step, event.confidence) == (150, 150, 0.5)
    assert feed(LossSpike(), LAYOUT, losses(values, batch_size=4)) == []


def test_spike_does_not_poison_the_baseline():
    values = 1.0 + 0.02 * rng(1).standard_normal(300)
    values[100:110] = values[150:160] = 5.0
    events = feed(LossSpike(), LAYOUT, losses(values))
    assert [(e.first_step, e.last_step) for e in events] == [(100, 109), (150, 159)]


def test_warm_restart_is_no_spike():
    values = np.concatenate([decay(200, tau=30), decay(200, start=0.9, tau=30)]) + 0.01 * rng(0).standard_normal(400)
    stream = Stream(LAYOUT)
    steps = [stream.step(float(v), lr=0.1 if i % 200 < 20 else 0.01) for i, v in enumerate(values)]
    assert feed(LossSpike(), LAYOUT, steps) == []
    assert feed(LossDivergence(), LAYOUT, steps) == []


def test_far_above_start_from_step_one_diverges_at_step_one():
    values = [2.3, *(2.3e4 * np.exp(0.3 * rng(0).standard_normal(30)))]
    (event,) = feed(LossDivergence(), LAYOUT, losses(values))
    assert (event.first_step, event.last_step) == (1, 30)
    assert event.details["how"] == "above_start"
    assert event.details["start"] == 2.3
    assert event.confidence > 0.9
    (spike,) = feed(LossSpike(), LAYOUT, losses(values))
    assert spike.first_step == 1


def test_a_divergence_with_a_lull_begins_where_the_loss_first_broke():
    broken = [5254.0, 3044.0, 2.2, 2335.0, 4223.0, 3059.0, 773.0]
    values = [*(2.0 + 0.1 * rng(0).standard_normal(90)), *broken, *np.full(30, 2.0)]
    (event,) = feed(LossDivergence(), LAYOUT, losses(values))
    assert (event.first_step, event.last_step) == (90, 96)


@pytest.mark.parametrize(("far", "lull"), [(1, 1), (1, 5), (2, 2), (2, 20)])
def test_a_divergence_after_a_spike_or_a_long_lull_begins_after_it(far, lull):
    broken = [3044.0, 2335.0, 4223.0]
    values = [*(2.0 + 0.1 * rng(0).standard_normal(90)), *np.full(far, 5000.0), *np.full(lull, 2.0), *broken]
    (event,) = feed(LossDivergence(), LAYOUT, losses(values))
    assert event.first_step == 90 + far + lull


def test_divergence_into_nan_is_told_at_once():
    (event,) = feed(LossDivergence(), LAYOUT, losses([2.3, 2.2, 1e6, math.nan, math.nan]))
    assert (event.first_step, event.last_step) == (2, 4)


def test_collapse_to_chance_after_learning_diverges():
    values = np.concatenate([decay(150), np.full(100, 2.303)]) + 0.02 * rng(0).standard_normal(250)
    (event,) = feed(LossDivergence(), LAYOUT, losses(values))
    assert 150 <= event.first_step <= 152
    assert event.last_step == 249
    assert event.details["how"] == "rise"
    assert event.details["best"] == pytest.approx(values[130:150].min(), abs=0.1)


def test_divergence_ends_when_the_loss_comes_back():
    values = np.concatenate([decay(150), np.full(40, 2.3), decay(150, start=2.3, tau=10)])
    (event,) = feed(LossDivergence(), LAYOUT, losses(values + 0.02 * rng(0).standard_normal(340)))
    assert 185 <= event.last_step <= 205


def test_adversarial_losses_may_rise():
    layout = chain(2)
    stream = Stream(layout)
    noise = rng(0).standard_normal((300, 2))
    steps = []
    for i in range(300):
        steps.append(stream.step(1.38 * math.exp(-i / 100) + 0.05 * noise[i, 0], stream=0))
        steps.append(stream.step(0.7 + i / 100 + 0.3 * noise[i, 1], stream=1))
    for detector in ALL:
        assert feed(detector(), layout, steps) == []


def test_never_learned_plateau_from_the_start():
    values = 2.303 + 0.03 * rng(0).standard_normal(600)
    (event,) = feed(LossPlateau(), LAYOUT, losses(values))
    assert event.first_step == 0
    assert event.last_step >= 550
    assert not event.details["after_learning"]
    assert event.details["never_improved"]
    assert event.details["noise"] == pytest.approx(0.03, rel=0.15)
    assert event.details["level"] == pytest.approx(2.303, abs=0.01)
    assert event.confidence > 0.6


def test_plateau_slope_agrees_with_numpy():
    values = 5.0 - 1e-6 * np.arange(256) + 0.1 * np.sin(np.arange(256) * 1.7)
    (event,) = feed(LossPlateau(), LAYOUT, losses(values))
    window = int(event.details["window"])
    assert event.details["slope"] == pytest.approx(np.polyfit(np.arange(window), values[-window:], 1)[0], abs=3e-4)


def test_converged_plateau_is_after_learning_and_unsure():
    values = decay(1000, end=0.1) + 0.01 * rng(0).standard_normal(1000)
    events = feed(LossPlateau(), LAYOUT, losses(values))
    assert events
    assert all(e.details["after_learning"] and e.confidence <= 0.2 for e in events)


def test_a_loss_that_jumps_after_learning_rests_on_no_plateau():
    """A Q-network's loss goes up and down by factors of ten as its own targets change, without a trend."""
    drift = np.zeros(600)
    for i, kick in enumerate(rng(0).standard_normal(599)):
        drift[i + 1] = 0.95 * drift[i] + 0.4 * kick
    values = 1e-3 * np.exp(drift + 0.5 * rng(1).standard_normal(600))
    values[:16] = 7e-3
    assert feed(LossPlateau(), LAYOUT, losses(values)) == []
    steady = 1e-3 * np.exp(0.5 * rng(1).standard_normal(600))  # as noisy, but from step to step
    steady[:16] = 7e-3
    assert feed(LossPlateau(), LAYOUT, losses(steady))


def test_plateau_ends_when_learning_begins():
    values = np.concatenate([np.full(300, 2.3), decay(400, tau=100)]) + 0.02 * rng(0).standard_normal(700)
    first = feed(LossPlateau(), LAYOUT, losses(values))[0]
    assert first.first_step == 0
    assert 295 <= first.last_step < 450


def test_warm_up_and_short_runs_have_no_plateau():
    values = 2.303 + 0.03 * rng(0).standard_normal(400)
    stream = Stream(LAYOUT)
    assert feed(LossPlateau(), LAYOUT, [stream.step(float(v), lr=1e-6 * (i + 1)) for i, v in enumerate(values)]) == []
    assert feed(LossPlateau(), LAYOUT, losses(values[:60])) == []


def test_million_step_state_stays_small():
    detector = LossPlateau()
    stream = Stream(LAYOUT)
    for i in range(20_000):
        stream.index = i
        detector.observe(losses([1.0 + (i % 7) * 0.01], layout=LAYOUT)[0], LAYOUT) if i < 200 else None
        if i >= 200:
            detector._streams[0].add(i, 1.0 + (i % 7) * 0.01, 0.0)
    kept = detector._streams[0]
    assert len(kept.means) <= 64
    assert kept.size * len(kept.means) + kept.inside == 20_000


def test_the_start_of_a_loss_is_its_first_one():
    values = [2.3, 14.0, 62.5, *np.full(40, 8e7)]
    (spike,) = feed(LossSpike(), LAYOUT, losses(values))
    assert (spike.details["start"], spike.details["start_step"]) == (2.3, 0)
    assert values[spike.details["at_step"]] == spike.details["loss"]
    (rise,) = feed(LossDivergence(), LAYOUT, losses(values))
    assert (rise.details["start"], rise.details["start_step"]) == (2.3, 0)
    assert rise.details["factor_of_start"] == pytest.approx(rise.details["level"] / 2.3)
    (flat,) = feed(LossPlateau(), LAYOUT, losses([5.0, *np.full(300, 2.3)]))
    assert (flat.details["start"], flat.details["start_step"]) == (5.0, 0)
