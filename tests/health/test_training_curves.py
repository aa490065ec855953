"""States, rates, plateaus and noise of made curves, of which the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.health.scalar_runs import run_of, series, thinned

from neuraldbg.health import curve_dynamics, training_dynamics
from neuraldbg.health.convergence import course_of, rate_of
from neuraldbg.health.curve_readings import curve_of
from neuraldbg.nouns.training_dynamics import STATES

SIZES = (30, 100, 400, 2000)


def judged(values, every=1):
    return curve_dynamics("loss", series(values, every))


def exponential(n, taus=3.0, floor=0.3, size=2.0):
    return floor + size * np.exp(-taus * np.arange(n) / n)


# ---------------------------------------------------------------- states


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("noise", [0.0, 0.003, 0.03])
def test_a_falling_loss_is_called_falling(n, noise):
    rng = np.random.default_rng(n)
    t = np.arange(n)
    for values in (exponential(n), 0.2 + 2 * (t + n / 10) ** -0.3, 2 - t / n, -t / n):
        assert judged(values + rng.normal(0, noise, n)).state == "falling"


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_a_flat_loss_is_called_flat_however_noisy(n, noise):
    made = (2.3 + np.random.default_rng(seed).normal(0, noise, n) for seed in range(20 if noise else 1))
    states = [course_of(curve_of(series(values))).state for values in made]
    if not noise:
        assert states == ["levelled off"]
        return
    # Three tests at the level of 2% may see a trend; and thirty values may be too few to exclude one.
    assert states.count("levelled off") >= (16 if n >= 100 else 8)
    assert sum(state in ("falling", "rising") for state in states) <= 3
    assert not {"diverged", "oscillating"} & set(states)


@pytest.mark.parametrize("n", SIZES)
def test_a_loss_that_rises_diverges_or_swings_is_called_so(n):
    rng, t = np.random.default_rng(3), np.arange(n)
    noise = rng.normal(0, 0.03, n)
    assert judged(2 + 0.6 * t / n + noise).state == "rising"
    assert judged(1 + (2 * t / n - 1) ** 2 + noise).state == "rising"
    assert judged(2 * np.exp(3 * t / n) + noise).state == "diverged"
    assert judged(1 + 0.4 * np.sin(2 * np.pi * 8 * t / n) + noise).state == "oscillating"
    assert judged(1 + 0.4 * (-1.0) ** t + noise).state == "oscillating"
    # A wave on a fall that is larger than it is a fall.
    assert judged(5 - 4 * t / n + 0.1 * np.sin(2 * np.pi * 8 * t / n) + noise).state == "falling"


@pytest.mark.parametrize("n", [400, 2000])
def test_a_loss_that_has_converged_has_levelled_off_since_the_step_at_which_it_reached_its_noise(n):
    noise = 0.03
    made = (exponential(n, taus=20) + np.random.default_rng(seed).normal(0, noise, n) for seed in range(12))
    level = [one for values in made if (one := judged(values)).state == "levelled off"]
    assert len(level) >= 10
    for found in level:
        assert found.plateau.level == pytest.approx(0.3, abs=0.01)
        # Within the noise of a single value, and above a hundredth of it, the fall is to be seen no more.
        reached = [n / 20 * math.log(2.0 / level) for level in (2 * noise, noise / 100)]
        assert reached[0] <= found.plateau.since <= reached[1]
    assert judged(np.where(np.arange(n) < n // 2, 2.0, 1.0)).state == "levelled off"


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ([], "not enough data"),
        ([1.0], "not enough data"),
        ([2.0, 1.0], "not enough data"),
        ([5, 4, 3, 2, 1], "falling"),
        ([1, 2, 3, 4, 5], "rising"),
        ([10, 10.5, 11, 11.5, 12], "rising"),
        ([3, 1, 2, 1, 3], "not enough data"),
        ([1.0] * 50, "levelled off"),
        ([0.0] * 50, "levelled off"),
        ([1, 0.9, np.nan], "diverged"),
        ([np.nan], "diverged"),
        ([1, 2, np.inf], "diverged"),
        ([1, np.nan, 0.9, 0.8, 0.7, 0.6], "falling"),
        ([1e300, 1e301, 1e302], "diverged"),
        ([-1, -2, -3, -4, -5, -6], "falling"),
        ([3, 2, 1, 0, -1, -2], "falling"),
    ],
)
def test_tiny_and_odd_runs(values, state):
    found = judged(values)
    assert found.state == state
    assert (found.expected is None) == (len(values) < 20)
    assert bool(found.no_expectation) == (found.expected is None)
    assert str(found)


def test_random_walks_are_neither_called_level_nor_given_an_end():
    walks = [5 + np.cumsum(np.random.default_rng(seed).normal(0, 0.1, 400)) for seed in range(30)]
    found = [judged(walk) for walk in walks]
    assert sum(one.state == "levelled off" for one in found) <= 2
    assert not any(one.expected for one in found)


@pytest.mark.parametrize("every", [1, 7, 100])
def test_sparse_values_are_judged_like_dense_ones(every):
    values = exponential(60) + np.random.default_rng(0).normal(0, 0.02, 60)
    dense, sparse = judged(values), judged(values, every)
    assert sparse.state == dense.state == "falling"
    assert sparse.rate.per_step == pytest.approx(dense.rate.per_step / every)
    assert sparse.expected.value == pytest.approx(dense.expected.value)


def test_a_thinned_series_is_judged_like_the_whole_one():
    rng, n = np.random.default_rng(5), 20_000
    for values, state in ((exponential(n), "falling"), (exponential(n, taus=40), "levelled off")):
        noisy = values + rng.normal(0, 0.05, n)
        whole, few = curve_dynamics("loss", series(noisy)), curve_dynamics("loss", thinned(noisy, 64, 300))
        assert whole.state == few.state == state
        assert few.last == pytest.approx(whole.last, abs=0.03)
        assert few.stability.noise == pytest.approx(0.05, rel=0.25)
        assert few.expected.value == pytest.approx(whole.expected.value, abs=0.02)
        if state == "falling":
            assert few.rate.low <= whole.rate.per_step <= few.rate.high


# ---------------------------------------------------------------- rate and noise


@pytest.mark.parametrize("n", [100, 1000])
def test_the_interval_of_the_rate_holds_the_truth(n):
    truth, hits = 3 / n, 0
    for seed in range(60):
        noise = np.exp(np.random.default_rng(seed).normal(0, 0.1, n))
        curve = curve_of(series(exponential(n, floor=0.0) * noise))
        rate = rate_of(curve, course_of(curve))
        assert rate.of == "level"
        hits += rate.low <= truth <= rate.high
    assert hits >= 51, "95% of 60 are 57, and the standard deviation is 1.7"


def test_the_rate_of_few_values_is_the_slope_of_scipy():
    values = np.array([5.0, 4.1, 3.3, 2.9, 2.2, 1.9, 1.5])
    oracle = stats.theilslopes(np.log(values), np.arange(7.0), alpha=0.95)
    rate = judged(values).rate
    assert (rate.per_step, rate.low, rate.high) == pytest.approx(
        (-oracle.slope, -oracle.high_slope, -oracle.low_slope), rel=1e-9
    )
    shifted = judged(values - 3).rate
    plain = stats.theilslopes(values, np.arange(7.0), alpha=0.95)
    assert shifted.of == "range"
    assert shifted.per_step == pytest.approx(-plain.slope / (values.max() - values.min()), rel=0.1)


def test_noise_is_relative_to_the_level_and_its_growth_is_seen():
    rng = np.random.default_rng(8)
    assert judged(2 + rng.normal(0, 0.02, 300)).stability.word == "steady"
    noisy = judged(2 + rng.normal(0, 0.5, 300)).stability
    assert noisy.word == "noisy"
    assert noisy.relative == pytest.approx(0.25, rel=0.2)
    assert judged(2 * np.exp(rng.normal(0, 1.0, 300))).stability.word == "very noisy"
    grows = np.concatenate([rng.normal(0, 0.1, 200), rng.normal(0, 0.4, 100)])
    assert judged(2 + grows).stability.growth == pytest.approx(4, rel=0.4)


# ---------------------------------------------------------------- the whole


def test_metrics_evaluations_and_the_gap_are_read():
    n, rng = 200, np.random.default_rng(0)
    loss = exponential(n, floor=0.05) + rng.normal(0, 0.02, n)
    evaluation = np.full(n, np.nan)
    at = np.arange(19, n, 20)
    evaluation[at] = 0.6 + 0.8 * ((at - 70) / 100) ** 2
    run = run_of(loss=loss, eval_loss=evaluation, batch_size=[32] * n, **{"metric/accuracy": 1 - loss / 3})
    dynamics = training_dynamics(run)
    assert dynamics.losses[0].state == "falling"
    assert dynamics.evaluation.values == 10
    assert [(one.name, one.state) for one in dynamics.metrics] == [("accuracy", "rising")]
    assert dynamics.gap.word == "growing"
    assert dynamics.gap.overfits
    assert dynamics.gap.best_step == 79
    level = np.median(loss[-10:])  # of twenty around an evaluation those that there are
    assert dynamics.gap.gap == pytest.approx(evaluation[at[-1]] - level)
    assert dynamics.efficiency.ratio == pytest.approx((np.exp(-2) - np.exp(-3)) / (1 - np.exp(-1)), rel=0.15), (
        "thirds of an exponential"
    )
    fall = np.median(loss[:3]) - dynamics.losses[0].last
    assert dynamics.efficiency.per_sample == pytest.approx(fall / (32 * n))
    assert dynamics.efficiency.share_of_steps == pytest.approx(-np.log(0.1 + 0.9 * np.exp(-3)) / 3, abs=0.06)


def test_a_steady_gap_is_no_overfitting():
    n = 100
    loss = exponential(n)
    evaluation = np.where(np.arange(n) % 10 == 9, loss + 0.1, np.nan)
    gap = training_dynamics(run_of(loss=loss, eval_loss=evaluation)).gap
    assert not gap.overfits
    assert gap.word in ("steady", "growing", "shrinking")
    few = np.where(np.arange(n) % 50 == 49, loss, np.nan)
    assert training_dynamics(run_of(loss=loss, eval_loss=few)).gap.word == "not enough data"
    assert training_dynamics(run_of(loss=loss)).gap is None


def test_odd_numbers_are_found_with_their_steps():
    n, mb = 200, 1 << 20
    loss = exponential(n) + np.random.default_rng(0).normal(0, 0.01, n)
    loss[150] = 40.0
    lr = np.full(n, 1e-3)
    lr[80:] = 1e-2
    accuracy = np.linspace(0, 1, n)
    accuracy[33] = np.inf
    throughput = np.where(np.arange(n) < 100, 1000.0, 1000.0 - 6 * (np.arange(n) - 100))
    run = run_of(
        loss=loss, lr=lr, resident=(1000 + 5 * np.arange(n)) * mb,
        **{"metric/accuracy": accuracy, "metric/throughput_samples_per_sec": throughput},
    )  # fmt: skip
    found = {one.kind: one for one in training_dynamics(run).anomalies}
    assert set(found) == {"spike", "learning_rate_jump", "nonfinite", "memory_grows", "throughput_falls"}
    assert found["spike"].step == 150
    assert found["learning_rate_jump"].step == 80
    assert found["nonfinite"].step == 33
    assert training_dynamics(run).losses[0].stability.spikes == (150,)


def test_schedules_and_steady_machines_are_not_odd():
    n, rng = 300, np.random.default_rng(0)
    warm = np.minimum(np.arange(1, n + 1) / 30, 1) * 1e-3
    restarts = 1e-3 * (1 + np.cos(np.pi * (np.arange(n) % 100) / 100)) / 2
    for lr in (warm, restarts):
        run = run_of(
            loss=exponential(n), lr=lr, resident=np.full(n, 2.0**30),
            duration=0.01 * np.exp(rng.normal(0, 0.3, n)), batch_size=[8] * n,
        )  # fmt: skip
        assert training_dynamics(run).anomalies == ()


def test_an_empty_run_says_so():
    dynamics = training_dynamics(run_of())
    assert dynamics.state == "not enough data"
    assert "not enough data" in str(dynamics)
    assert dynamics == training_dynamics(run_of())


FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=64)


@settings(max_examples=150, deadline=None)
@given(st.lists(FLOATS, max_size=60), st.integers(1, 500), st.integers(1, 9))
def test_any_values_are_judged_without_an_error(values, every, width):
    found = curve_dynamics("loss", series(values, max(every, width), width))
    assert found.state in STATES
    assert str(found)
    assert found.values == len([v for v in values if math.isfinite(v) and abs(v) < 1e120])
    for one in (found.rate, found.expected):
        assert one is None or all(map(math.isfinite, (one.low, one.high)))
    if found.expected is not None:
        assert found.expected.low <= found.expected.value <= found.expected.high
    if found.values < 5:
        assert found.state in ("not enough data", "diverged")
