"""Noise, order and slope against scipy, and against what is known of made values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from neuraldbg.nouns.robust_statistics import correlation_inflation, kendall, noise_of, theil_sen

VALUES = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=2, max_size=30)


@given(VALUES)
def test_the_slope_is_that_of_scipy(values):
    x, y = np.arange(len(values), dtype=float), np.array(values)
    ours, oracle = theil_sen(x, y), stats.theilslopes(y, x, alpha=0.95)
    assert ours.value == pytest.approx(oracle.slope, rel=1e-12, abs=1e-12)
    assert (ours.low, ours.high) == pytest.approx((oracle.low_slope, oracle.high_slope), rel=1e-12, abs=1e-12)


def test_the_slope_of_uneven_steps_with_ties_is_that_of_scipy():
    rng = np.random.default_rng(0)
    for n in (5, 16, 60):
        x = np.cumsum(rng.integers(1, 9, n)).astype(float)
        y = rng.integers(0, 4, n) - 0.01 * x
        ours, oracle = theil_sen(x, y), stats.theilslopes(y, x, alpha=0.95)
        assert tuple(ours) == pytest.approx((oracle.slope, oracle.low_slope, oracle.high_slope))


@pytest.mark.parametrize("n", [1, 2, 5, 8, 10])
def test_few_values_are_counted_out_as_scipy_does(n):
    rng = np.random.default_rng(n)
    for _ in range(20):
        y = rng.normal(size=n)
        expected = stats.kendalltau(np.arange(n), y, method="exact").pvalue if n > 1 else 1.0
        assert kendall(y).p == pytest.approx(expected)


def test_the_exact_probability_is_that_of_all_permutations():
    y = np.array([1.0, 2.0, 4.0, 3.0, 5.0])
    every = [abs(kendall(np.array(one)).s) for one in itertools.permutations(y)]
    assert kendall(y).p == pytest.approx(np.mean([s >= kendall(y).s for s in every]))


@given(VALUES)
def test_more_values_and_ties_are_judged_as_scipy_does_without_its_continuity(values):
    y = np.round(np.array(values), -5)
    ours = kendall(y)
    assert 0 <= ours.p <= 1
    if len(y) > 10 and len(np.unique(y)) > 1:
        oracle = stats.kendalltau(np.arange(len(y)), y, method="asymptotic")
        # scipy takes no continuity correction: |S| - 1 instead of |S| moves z by one over the standard deviation.
        assert ours.p >= oracle.pvalue - 1e-12
        assert np.sign(ours.s) == np.sign(np.nan_to_num(oracle.statistic))


def test_the_noise_of_normal_values_about_any_trend_is_their_standard_deviation():
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.3, 20_000)
    assert noise_of(noise) == pytest.approx(0.3, rel=0.03)
    assert noise_of(noise + np.linspace(5, -5, 20_000)) == pytest.approx(0.3, rel=0.03)
    spiky = noise.copy()
    spiky[::20] += 100
    assert noise_of(spiky) == pytest.approx(0.3, rel=0.15)
    assert noise_of(np.array([1.0, 2.0])) == 0.0


def test_correlated_noise_widens_by_what_theory_says():
    rng, r, n = np.random.default_rng(2), 0.6, 100_000
    values = np.zeros(n)
    for i in range(1, n):
        values[i] = r * values[i - 1] + rng.normal()
    assert correlation_inflation(values) == pytest.approx((1 + r) / (1 - r), rel=0.03)
    assert correlation_inflation(rng.normal(size=16)) == 1.0
    assert correlation_inflation(np.zeros(16)) == 1.0
    assert correlation_inflation(np.zeros(0)) == 1.0


def test_without_two_steps_there_is_no_slope():
    assert all(map(math.isnan, theil_sen(np.array([3.0]), np.array([1.0]))))
    assert all(map(math.isnan, theil_sen(np.array([3.0, 3.0]), np.array([1.0, 2.0]))))
