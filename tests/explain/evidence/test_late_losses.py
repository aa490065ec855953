"""Losses that were sound for long: the level that they lost, the step from which they lost it, and harmless rises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.explain.run_builder import Build

from neuraldbg.explain import diagnose
from neuraldbg.explain.evidence.loss_curve import LossSummary
from neuraldbg.nouns import Series


def summary(values) -> LossSummary:
    n = len(values)
    return LossSummary(Series(np.arange(n), np.asarray(values, dtype=float), np.ones(n, np.int64)))


def sound(steps, first=2.3, last=0.01, noise=0.1, seed=0):
    """A loss that falls within a fifth of its steps, with noise in proportion to its level."""
    rng = np.random.default_rng(seed)
    level = last + (first - last) * np.exp(-5 * np.arange(steps) / (steps / 5))
    return level * np.exp(noise * rng.standard_normal(steps))


def test_a_loss_that_scatters_more_after_its_collapse_than_it_rose_has_diverged():
    rng = np.random.default_rng(0)
    after = np.abs(1.6 + 0.8 * rng.standard_normal(2200))
    loss = summary([*sound(800), *after])
    assert 5 * loss.noise > loss.last - loss.best  # the noise of the whole series hides the rise
    assert loss.diverged
    assert loss.calm < 0.01


@settings(max_examples=60, deadline=None)
@given(
    at=st.integers(400, 1900), level=st.floats(1.8, 300.0), ramp=st.integers(1, 15), seed=st.integers(0, 10**6),
    scatter=st.floats(0.02, 0.5),
)  # fmt: skip
def test_the_rise_is_dated_where_it_begins(at, level, ramp, seed, scatter):
    rng = np.random.default_rng(seed)
    values = sound(2000, seed=seed)
    share = np.minimum(np.arange(1, 2001 - at) / ramp, 1.0)
    values[at:] = values[at:] ** (1 - share) * (level * np.exp(scatter * rng.standard_normal(2000 - at))) ** share
    loss = summary(values)
    if 2000 - at < loss.window:  # fewer losses than make a level
        return
    assert loss.diverged
    assert loss.jumped
    assert at - 1 <= loss.risen_from <= at + ramp
    assert loss.best_step < at + loss.window


def test_an_outlier_before_the_rise_is_not_its_begin():
    values = sound(1000)
    values[600:] = 2.0
    values[560] = 5.0
    assert summary(values).risen_from == 600


@pytest.mark.parametrize("seed", range(3))
def test_a_new_task_that_is_being_learnt_comes_back_and_one_that_settles_does_not(seed):
    again = np.concatenate([sound(1000, seed=seed), sound(1000, last=0.05, seed=seed + 9)])
    assert not summary(again).diverged
    creeping = np.concatenate([sound(1000, seed=seed), 1.6 - 1e-4 * np.arange(1000)])
    creeping[1000:] += 0.02 * np.random.default_rng(seed).standard_normal(1000)
    loss = summary(creeping)
    assert loss.still_falling  # by a tenth of what was lost
    assert loss.diverged


def test_a_batch_of_one_whose_losses_have_two_levels_has_not_diverged():
    rng = np.random.default_rng(3)
    values = np.where(rng.random(3000) < np.linspace(0.9, 0.35, 3000), 2.5, 0.02) * np.exp(
        0.1 * rng.standard_normal(3000)
    )
    assert not summary(values).diverged


def test_the_whole_course_is_told():
    found = diagnose(Build(steps=1500).loss(np.r_[sound(1200), np.full(300, 8.7)]).build())
    assert found.verdict in ("suspect", "failing")
    assert "the loss fell to 0.00" in found.summary.lower()
    assert "then jumped to 8.7 (median of the last 50 losses) from step 1200 on and stayed there" in found.summary


def test_a_loss_that_was_huge_at_first_may_lose_all_against_a_constant_guess():
    values = np.r_[np.geomspace(100.0, 3.0, 50), sound(950)]
    values[800:] = 2.3 + 0.01 * np.random.default_rng(0).standard_normal(200)  # the guess of ten classes
    found = diagnose(Build(steps=1000).loss(values).build())
    assert found.verdict in ("suspect", "failing")
    assert "jumped to 2.3" in found.summary


def test_a_squared_error_that_loses_orders_of_magnitude_in_a_jump_is_suspect_and_a_cross_entropy_is_not():
    values = sound(1500, first=2.0, last=0.001)
    values[1200:] = 0.2 * np.exp(0.1 * np.random.default_rng(0).standard_normal(300))
    classes = Build(steps=1500).loss(values)
    squared = Build(steps=1500).loss(values).loss_term(
        kind="mse", classes=0, target_dtype="float32", target={"mean": 0.0, "std": 1.5, "min": -4, "max": 4}
    )  # fmt: skip
    assert diagnose(classes.build()).verdict == "healthy"  # as with smoothed labels, or augmented data
    assert "after a low of 0.00" in diagnose(classes.build()).summary
    found = diagnose(squared.build())
    assert found.verdict == "suspect"
    assert "then jumped to 0.194 (median of the last 50 losses) from step 1200 on and stayed there. " in found.summary


def harder(level=0.77, **scalars) -> Build:
    """A loss of ten classes that jumps at step 1200, and scalars that are other ones from then on."""
    values = sound(1500, last=0.03)
    values[1200:] = level * np.exp(0.1 * np.random.default_rng(0).standard_normal(300))
    build = Build(steps=1500).loss(values)
    for name, value in scalars.items():
        build.scalar(name, value, slice(1200, None))
    return build


def test_a_jump_of_the_training_loss_alone_is_told_without_an_alarm():
    found = diagnose(harder().build())  # as by inputs that are masked from then on
    assert found.verdict == "healthy"
    assert "after a low of 0.0" in found.summary
    assert "and a jump at step 1200" in found.summary
    assert diagnose(harder(1.6).build()).verdict != "healthy"  # most of what was learnt


def test_the_same_jump_with_a_second_sign_is_suspect():
    change = {"before": 0.9, "after": 0.999, "since": 1187, "until": 1202, "stream": 0, "name": "", "names": []}
    assert diagnose(harder(lr=1.0).build()).verdict != "healthy"
    assert diagnose(harder().fact("change", 1202, what="momentum", **change).build()).verdict != "healthy"
    assert diagnose(harder().fact("change", 1202, what="optimizer", **change).build()).verdict == "healthy"
    assert diagnose(harder().event("update_ratio_high", 1201, "fc1").build()).verdict != "healthy"
    for name, before, after in (("eval_loss", 0.3, 0.9), ("metric/val_acc", 0.9, 0.6)):
        for level, verdict in ((after, "suspect"), (before, "healthy")):
            build = harder()
            for step in range(100, 1500, 100):
                build.scalar(name, level if step >= 1200 else before, step)
            assert diagnose(build.build()).verdict == verdict, (name, level)


def test_a_loss_that_is_computed_in_another_way_is_not_compared_with_its_own_lowest_level():
    build = harder(1.41)  # label smoothing of 0.3
    assert diagnose(build.build()).verdict != "healthy"
    build.fact("loss", 1201, stream=0, ops=[], terms=[build.term(kind="smoothed")])
    assert diagnose(build.build()).verdict == "healthy"
    lost = harder(2.25)  # the level of a guess, of whatever loss
    lost.fact("loss", 1201, stream=0, ops=[], terms=[lost.term()])
    assert diagnose(lost.build()).verdict != "healthy"


def test_a_jump_that_falls_again_is_learnt():
    values = sound(1500, last=0.03)
    values[1200:] = 1.3 + 0.9 * np.exp(-np.arange(300) / 200)
    values[1200:] += 0.03 * np.random.default_rng(0).standard_normal(300)
    found = diagnose(Build(steps=1500).loss(values).build())
    assert found.verdict == "healthy"
    assert "and a jump at step 1200" in found.summary
    values[1200:] = 1.5 + 0.03 * np.random.default_rng(0).standard_normal(300)
    values[1200:1250] += 20 * np.exp(-np.arange(50) / 10)  # a shock that fades, and no more
    assert diagnose(Build(steps=1500).loss(values).build()).verdict != "healthy"


def test_a_loss_that_rests_at_its_floor_is_no_alarm():
    values = sound(1000, last=0.05)
    values[600:] = 0.05  # a margin plus a constant
    found = diagnose(Build(steps=1000).loss(values).scalar("grad_norm", 0.0, slice(600, None)).build())
    assert found.verdict == "healthy"
    assert "no gradient has reached the weights from step 600 on" in found.summary
    values[600:] = 0.9  # worse than it was
    found = diagnose(Build(steps=1000).loss(values).scalar("grad_norm", 0.0, slice(600, None)).build())
    assert found.verdict in ("suspect", "failing")


def test_weights_without_any_gradient_at_the_end_are_told_with_their_date():
    build = Build(steps=1000).scalar("grad_norm", 0.0, slice(700, None))
    build.loss(0.4 + 0.01 * np.random.default_rng(0).standard_normal(300), slice(700, None))
    found = diagnose(build.build())
    assert found.verdict in ("suspect", "failing")
    assert "no gradient has reached the weights from step 700 on" in found.summary.lower()
    solved = Build(steps=1000).scalar("grad_norm", 0.0, slice(700, None)).loss(0.0, slice(600, None))
    assert "no gradient has reached" not in diagnose(solved.build()).summary.lower()


def test_an_evaluation_that_is_worse_than_a_guess_at_once_is_suspect_and_one_that_creeps_up_is_not():
    def found(*values):
        build = Build(steps=1200).loss(sound(1200))
        for number, value in enumerate(values):
            build.scalar("eval_loss", value, 100 * (number + 1))
        return diagnose(build.build())

    lost = found(1.2, 0.5, 0.3, 0.25, 5.9, 4.7, 4.6)
    assert lost.verdict == "suspect"
    assert "the loss in evaluation fell to 0.25 by step 400, then jumped to 5.9 by step 500" in lost.summary.lower()
    for values in (
        (1.2, 0.5, 0.3, 0.8, 1.6, 2.5, 3.0, 3.5),
        (1.2, 0.5, 0.3, 0.25, 5.9, 0.3, 0.25),
        (0.3, 5.0, 5.0, 5.0),
    ):
        assert found(*values).verdict == "healthy"  # overfitting, one odd time, too few before
