"""Inputs of a record that change for good in mid-run: another scale, or one constant."""

from __future__ import annotations

import numpy as np
import pytest
from tests.explain.run_builder import Build

from neuraldbg.explain import Case
from neuraldbg.explain.evidence.change_points import input_shift
from neuraldbg.explain.evidence.new_inputs import new_inputs

STEPS, AT = 120, 70


def found(more=None, **changed):
    """The change in a run whose inputs have a mean of 0 and a spread of 1, and other values from step AT on; ``more``
    adds to the builder.
    """
    build = Build(steps=STEPS)
    if more is not None:
        more(build)
    usual = {"mean": 0.01, "std": 1.0, "rms": 1.0, "min": -3.0, "max": 3.0}
    rng = np.random.default_rng(0)
    for name, value in usual.items():
        values = value * (1 + 0.05 * rng.standard_normal(STEPS))
        if name in changed:
            new = changed[name]
            values[AT:] = new * (1 + (0.05 if new else 0.0) * rng.standard_normal(STEPS - AT))
        build.stat("input", "", name, values)
    return new_inputs(Case(build.build()))


def test_inputs_in_units_a_hundred_times_larger_are_dated_and_told():
    change = found(mean=50.0, std=100.0, rms=112.0, min=-250.0, max=350.0)
    assert (change.since, change.until, change.constant) == (AT - 1, AT, False)
    assert change.before.rms == pytest.approx(1.0, rel=0.05)
    assert change.after.rms == pytest.approx(112.0, rel=0.05)
    assert change.said.startswith(f"from step {AT} on the inputs range from -25")


def test_inputs_that_become_zero_are_a_constant():
    change = found(mean=0.0, std=0.0, rms=0.0, min=0.0, max=0.0)
    assert (change.since, change.until, change.constant) == (AT - 1, AT, True)
    assert change.said == f"from step {AT} on all values of the inputs are 0"


@pytest.mark.parametrize("factor", [0.5, 1.3, 4.0])
def test_inputs_that_spread_a_little_more_or_less_are_as_before(factor):
    assert found(std=factor, rms=factor, min=-3 * factor, max=3 * factor) is None


def test_inputs_that_come_to_unit_scale_are_not_spoilt():
    change = found(mean=0.0, std=30.0, rms=30.0, min=-90.0, max=90.0)
    assert change.spoilt
    small = found(mean=0.0, std=1 / 30, rms=1 / 30, min=-0.1, max=0.1)
    assert not small.spoilt  # of usual size before and after


def second_input(dtype):
    def more(build):
        build.site("input", "", name="mask", dtype=dtype, mean=0.5, std=0.5, rms=0.7, min=0.0, max=1.0, total=64)
        for stat, value in (("mean", 1.0), ("std", 0.0), ("rms", 1.0), ("min", 1.0)):
            build.stat("input", "", stat, value, slice(AT, None), name="mask")

    return more


@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_a_mask_that_comes_to_be_the_same_everywhere_leaves_the_inputs_as_they_are(dtype):
    assert found(second_input(dtype)) is None


def test_a_number_that_is_the_same_in_a_batch_and_not_in_all_is_no_constant():
    build = Build(steps=STEPS)
    level = np.random.default_rng(1).random(STEPS - AT)
    for name in ("mean", "rms", "min", "max"):
        build.stat("input", "", name, level, slice(AT, None))
    build.stat("input", "", "std", 0.0, slice(AT, None))
    assert new_inputs(Case(build.build())) is None


def test_a_mean_that_jumps_between_heavy_tails_is_no_change_of_scale():
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        build = Build(steps=STEPS)
        for name in ("mean", "min", "max"):
            build.stat("input", "", name, rng.standard_cauchy(STEPS))
        build.stat("input", "", "std", np.abs(rng.standard_cauchy(STEPS)) + 0.1)
        found.append(input_shift(Case(build.build())))
    assert all(one is None or one.scaled for one in found)
