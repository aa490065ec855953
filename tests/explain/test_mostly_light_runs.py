"""Runs of which most steps were light: the same causes where they can be known, and no claim about the unread."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.explain import stories
from tests.explain.run_builder import Build, falling

from neuraldbg import answers
from neuraldbg.explain import diagnose
from neuraldbg.explain.evidence.case import Case
from neuraldbg.nouns import STATS, Event, RunRecord, Series, column
from neuraldbg.show.static.crash import x_label
from neuraldbg.show.views.crash import picture

LIGHT = ("loss", "loss_nonfinite", "lr", "grad_norm", "duration", "overhead")
UNSEEN = np.full(len(STATS), np.nan, np.float32)
UNSEEN[[column(name) for name in ("total", "count", "nonfinite", "zeros", "units", "dead", "saturated")]] = 0


def lightened(run: RunRecord, full) -> RunRecord:
    """The same run of which only these steps were read."""
    history = run.history
    dark = ~np.isin(history.steps, list(full))
    mean = history.mean.copy()
    mean[dark] = UNSEEN[: mean.shape[2]]
    scalars = {name: np.where(dark & (name not in LIGHT), np.nan, values) for name, values in history.scalars.items()}
    return replace(run, history=replace(history, mean=mean, low=mean, high=mean, scalars=scalars))


def bursts(steps, first=15, every=16):
    return [t for t in range(steps) if t < first or (t - first) % every < 4]


CERTAIN = [
    stories.missing_zero_grad, stories.eval_mode_left_on, stories.param_not_in_optimizer, stories.double_softmax,
    stories.vanishing_depth, stories.dead_relu, stories.saturating_activation, stories.unnormalised_inputs,
    stories.lr_too_high,
]  # fmt: skip


@pytest.mark.parametrize("story", CERTAIN, ids=lambda story: story.__name__)
def test_causes_that_last_are_found_in_a_quarter_of_the_steps(story):
    run = story().build()
    thin = lightened(run, bursts(run.steps))
    before, after = diagnose(run).hypotheses[0], diagnose(thin).hypotheses[0]
    assert (after.cause, after.layer) == (before.cause, before.layer)


def test_a_healthy_run_stays_healthy_and_says_what_was_not_read():
    run = Build(steps=120).loss(falling(120)).build()
    thin = lightened(run, bursts(120))
    assert diagnose(thin).verdict == diagnose(run).verdict == "healthy"
    said = next(u.reason for u in diagnose(thin).unjudged if u.what == "single steps")
    assert "43 of 120 steps" in said
    assert not [u for u in diagnose(run).unjudged if u.what == "single steps"]


def test_nothing_is_said_of_a_step_that_was_not_read():
    run = stories.unstable_op().build()
    at = Case(run).origin.step
    thin = lightened(run, [t for t in range(run.steps) if t != at])
    case = Case(thin)
    assert (case.origin.step, case.origin.read, case.origin.sites) == (at, False, ())
    assert case.blind
    for hypothesis in diagnose(thin).hypotheses:
        assert not [e for e in hypothesis.evidence if "activations of that step were finite" in str(e)]


def test_a_gradient_that_was_nan_in_a_light_step_is_the_origin():
    build = Build(steps=60).loss(falling(60)).loss(math.nan, slice(31, None))
    run = lightened(build.build(), range(20))
    event = Event("nonfinite_gradient", "gradient_health", 30, 59, None, "", 1.0, {"unread": True})
    assert Case(replace(run, events=(event,))).origin.step == 30


def series_of(case, steps, values):
    steps = np.asarray(steps, np.int64)
    return Series(steps, np.asarray(values, float), np.ones(len(steps), np.int64))


def test_a_reading_stands_for_the_steps_behind_it():
    run = Build(steps=60).loss(falling(60)).build()
    case = Case(lightened(run, [0, 1, 2, 3, 20, 21, 40, 41]))
    read = series_of(case, [0, 1, 2, 3, 20, 21, 40, 41], range(8))
    held = case.held(read)
    assert len(held) == 60
    assert [int((held.values == v).sum()) for v in range(8)] == [1, 1, 1, 17, 1, 19, 1, 19]
    assert case.early(read, 10).values.tolist() == [0, 1, 2, 3]
    assert case.early(series_of(case, [40, 41], [1, 2]), 10).values.tolist() == [1]
    assert case.unbroken(read).steps.tolist() == [0, 1, 2, 3]
    assert (case.steps_read(), case.steps_known, case.skips) == (8, 60, True)
    whole = Case(run)
    assert whole.held(read) is read
    assert whole.unbroken(read) is read
    assert (whole.steps_read(), whole.skips) == (60, False)


def test_a_layer_is_shown_as_it_was_last_read():
    run = lightened(Build(steps=60).loss(falling(60)).build(), bursts(60, 15, 20))
    layer = next(site.module for site in run.layout.sites if site.kind == "param_grad")
    state = answers.inspect(run, layer)
    assert (state.step, state.unread) == (58, 1)
    assert state.statistics
    assert state.to_dict()["unread"] == 1
    earlier = answers.inspect(run, layer, 30)
    assert (earlier.step, earlier.unread) == (18, 12)
    assert "unread" not in answers.inspect(run, layer, 10).to_dict()


def test_what_lasted_when_it_was_last_read_still_lasts():
    run = lightened(Build(steps=60).loss(falling(60)).build(), range(20))
    layer = next(site.module for site in run.layout.sites if site.kind == "param_grad")
    lasting = Event("vanishing_gradients", "gradient_health", 3, 19, layer)
    over = Event("gradient_spike", "gradient_health", 30, 31, layer)
    health = answers.gradient_health(replace(run, events=(lasting, over)))
    assert (health.step, health.layers[layer], health.events) == (19, "vanishing", (lasting,))
    unknown = Event("nonfinite_gradient", "gradient_health", 50, 59, None, details={"unread": True})
    assert not answers.gradient_health(replace(run, events=(unknown,))).healthy


def test_the_cost_of_a_light_run_is_that_of_its_full_steps_too():
    run = lightened(Build(steps=60).loss(falling(60)).build(), range(0, 60, 10))
    cost = np.where(run.history.read, 0.5, 0.0)
    scalars = {**run.history.scalars, "overhead": cost, "duration": 1.0 + cost}
    told = diagnose(replace(run, history=replace(run.history, scalars=scalars))).run
    assert told["overhead_ratio"] == pytest.approx(0.05)


def test_a_picture_says_in_how_many_steps_layers_were_read():
    run = Build(steps=60).loss(falling(60)).build()
    thin = lightened(run, range(20))
    shown = picture(thin, diagnose(thin))
    assert shown.read == 20
    assert "layers were read in 20 of these steps" in x_label(shown)
    assert picture(run, diagnose(run)).read is None
    assert len(shown.loss) == 60
