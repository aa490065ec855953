"""Expected ends: fits against scipy, and intervals that hold what comes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import curve_fit
from tests.health.scalar_runs import series

from neuraldbg.health import curve_dynamics


def decay(t, floor, size, tau):
    return floor + size * np.exp(-t / tau)


def power(t, floor, size, shift, alpha):
    return floor + size * (t + shift) ** -alpha


def expected(values):
    return curve_dynamics("loss", series(values)).expected


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_the_fitted_exponential_is_that_of_scipy(noise):
    n = 60  # each value is a block of its own, so that both fit the same numbers
    for seed in range(3):
        t = np.arange(n, dtype=float)
        values = decay(t, 0.3, 2.0, 20.0) + np.random.default_rng(seed).normal(0, noise, n)
        best, _ = curve_fit(decay, t, values, p0=(0.3, 2.0, 20.0))
        found = expected(values)
        if found.form == "exponential":
            assert found.value == pytest.approx(decay(118.0, *best), abs=2e-3 * 2)
        assert found.low <= decay(118.0, *best) <= found.high


@pytest.mark.parametrize(
    ("n", "noise", "truth"),
    [
        (100, 0.01, lambda t: decay(t, 0.3, 2.0, 33.0)),
        (100, 0.1, lambda t: decay(t, 0.3, 2.0, 33.0)),
        (1000, 0.02, lambda t: decay(t, -1.0, 2.0, 200.0)),
        (1000, 0.02, lambda t: power(t, 0.2, 2.0, 3.0, 0.5)),
        (400, 0.05, lambda t: power(t, 0.0, 3.0, 10.0, 0.8)),
    ],
    ids=["exponential", "noisy exponential", "negative exponential", "power law", "noisy power law"],
)
def test_intervals_hold_the_truth_as_often_as_they_say(n, noise, truth):
    told = held = 0
    for seed in range(30):
        values = truth(np.arange(n, dtype=float)) + np.random.default_rng(seed).normal(0, noise, n)
        found = expected(values)
        if found is not None and found.form != "level":
            told += 1
            assert found.at_step == 2 * (n - 1)
            held += found.low <= truth(float(found.at_step)) <= found.high
    assert told >= 20
    assert held >= 0.9 * told


def test_a_clean_curve_is_predicted_closely():
    for truth in (lambda t: decay(t, 0.3, 2.0, 150.0), lambda t: power(t, 0.1, 2.0, 1.0, 0.5)):
        found = expected(truth(np.arange(400.0)))
        assert found.value == pytest.approx(truth(798.0), rel=0.01)
        assert found.high - found.low < 0.02


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (np.linspace(2, 1, 19), "19 values"),
        (np.linspace(1, 2, 100), "rising"),
        (1 + 0.5 * np.sin(np.arange(200) / 3), "oscillating"),
        (np.linspace(2, 1, 100) + np.where(np.arange(100) > 80, -0.5, 0), "fits"),
    ],
)
def test_what_cannot_be_told_is_not(values, why):
    found = curve_dynamics("loss", series(values))
    assert found.expected is None
    assert why in found.no_expectation


def test_a_plateau_that_fits_no_form_keeps_its_level():
    made = [expected(2.3 + np.random.default_rng(seed).normal(0, 0.1, 400)) for seed in range(12)]
    told = [found for found in made if found is not None]
    assert len(told) >= 10
    assert sum(found.low <= 2.3 <= found.high for found in told) >= len(told) - 1
    assert all(found.high - found.low < 0.6 for found in told)
