"""Runs of which most steps were light: the same causes where they can be known, and no claim about the unread."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.explain import stories, stories_dynamics
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


def test_counts_are_of_the_steps_that_were_read():
    run = stories.missing_zero_grad().build()
    for one, said in (
        (run, "of the 59 steps after the first"),
        (lightened(run, bursts(60)), "after the first that were read"),
    ):
        found = [
            e.statement for h in diagnose(one).hypotheses for e in h.evidence if "steps after the first" in e.statement
        ]
        assert [said in words for words in found] == [True]
        assert ("that were read" in found[0]) == (one is not run)
    coverage = {**run.info.coverage, "graded": 856, "reached": 686}
    passes = replace(lightened(run, bursts(60)), info=replace(run.info, coverage=coverage))
    reasons = [one.reason for one in diagnose(passes).unjudged]
    assert "170 of 856 training passes that were read were not followed by a backward pass" in reasons


def test_a_healthy_run_stays_healthy_and_says_what_was_not_read():
    run = Build(steps=120).loss(falling(120)).build()
    thin = lightened(run, bursts(120))
    assert diagnose(thin).verdict == diagnose(run).verdict == "healthy"
    said = next(u.reason for u in diagnose(thin).unjudged if u.what == "layers in most steps")
    assert "43 of 120 steps" in said
    assert not [u for u in diagnose(run).unjudged if u.what == "layers in most steps"]


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
    assert [len(line.steps) for line in shown.losses] == [60]


def test_batches_unlike_the_others_begin_at_the_first_that_the_loss_shows():
    build = Build(steps=120).loss(falling(120))
    build.stat("input", "", "min", -1015.0, slice(90, 100)).stat("input", "", "rms", 217.0, slice(90, 100))
    build.loss([5254.0, 3044, 2400, 2335, 4223, 3059, 773, 900, 1184, 3382], slice(90, 100))
    build.event("gradient_spike", 90, last=99).scalar("grad_norm", 1e5, slice(90, 100))
    run = lightened(build.build(), [*range(20), *range(91, 120)])
    diagnosis = diagnose(run)
    first = diagnosis.hypotheses[0]
    assert (first.cause, first.step, first.title) == ("bad_batch", 90, "A few batches unlike the others")
    said = " ".join(one.statement for one in first.evidence)
    assert "the batch of step 91 has a lowest value of -1015" in said
    assert "the loss of step 90 is 5254, the median before it" in said
    assert "9 of the 49 batches read are like that" in said
    assert "%" not in said
    assert first.remedy is not None
    assert first.remedy.text.startswith("Find the rows that are far off in the batches of steps 91, 92, 93 and 6 more")
    assert [node.step for node in diagnosis.chain.nodes][:2] == [90, 90]


def one_late_gap() -> Build:
    """Rows that are far off fill two batches, of which the second one was read; Adam's gradients jump behind them."""
    build = stories_dynamics.stepping(Build(steps=200, lr=3e-3), "Adam", betas=[0.9, 0.999])
    noise = np.random.default_rng(2).standard_normal(200)
    build.loss(np.concatenate([falling(125, 1.2, 0.013), np.full(75, 0.376)]) * (1 + 0.02 * noise))
    build.loss([7.1e7, 0.06, 0.145], slice(125, 128)).scalar("grad_norm", 6.25e4, 125).scalar("update_ratio", 3e-3)
    build.stat("input", "", "min", -9999.0, slice(125, 127)).stat("input", "", "rms", 8240.0, slice(125, 127))
    build.stat("param_grad", "fc1", "rms", 0.3, slice(127, None), name="weight")
    return build.event("loss_spike", 125).event("gradient_spike", 125)


def test_a_batch_right_behind_an_unread_explosion_explains_it():
    run = lightened(one_late_gap().build(), [t for t in range(200) if t != 125])
    diagnosis = diagnose(run)
    first, by_cause = diagnosis.hypotheses[0], {h.cause: h for h in diagnosis.hypotheses}
    assert (first.cause, first.step, first.title) == ("bad_batch", 125, "One batch unlike all others")
    said = [one.statement for one in first.evidence if one.supports]
    assert any("the batch of step 126" in one and "from step 125 on, batches were not read" in one for one in said)
    assert not any("the trouble began before" in one.statement for one in first.evidence)
    assert "adam_second_moment_stale" not in by_cause
    assert diagnosis.chain.nodes[0].id == "cause:bad_batch"
    steps = [node.step for node in diagnosis.chain.nodes if node.step is not None]
    assert steps == sorted(steps)


def test_an_explosion_long_before_a_batch_is_not_its_effect():
    build, both = one_late_gap(), slice(125, 127)
    build.stat("input", "", "min", -1.0, both).stat("input", "", "rms", 1.0, both)
    build.stat("input", "", "min", -9999.0, 140).stat("input", "", "rms", 8240.0, 140)
    found = {h.cause: h for h in diagnose(lightened(build.build(), [t for t in range(200) if t != 125])).hypotheses}
    assert "bad_batch" not in found or found["bad_batch"].confidence < 0.5


def test_a_jump_of_gradients_after_the_loss_broke_is_not_its_cause():
    build = stories.STORIES["adam_second_moment_stale"].fires()
    assert diagnose(build.build()).hypotheses[0].cause == "adam_second_moment_stale"
    build.loss(8.0, slice(110, 120))
    assert "adam_second_moment_stale" not in {h.cause for h in diagnose(build.build()).hypotheses if h.confidence > 0.5}


def test_updates_that_did_not_grow_are_not_said_to_have_outgrown_the_learning_rate():
    fine = diagnose(stories.STORIES["adam_second_moment_stale"].fires().build()).hypotheses[0]
    assert "updates outgrew the learning rate" in fine.sentence
    build = stories.STORIES["adam_second_moment_stale"].fires().scalar("update_ratio", 2e-3)
    found = next(h for h in diagnose(build.build()).hypotheses if h.cause == "adam_second_moment_stale")
    assert "outgrew" not in found.sentence


@pytest.mark.parametrize("full", [range(200), [*range(9), *range(9, 200, 8)]], ids=["all", "first_closely"])
def test_the_norm_to_clip_at_hardly_depends_on_how_closely_steps_were_read(full):
    norms = np.concatenate([np.linspace(1.8, 0.8, 9), 0.1 + 0.05 * np.random.default_rng(0).random(191)])
    build = Build(steps=200).loss(falling(200)).scalar("grad_norm", norms)
    run = lightened(build.build(), full)
    known = np.isin(run.history.steps, list(full))
    scalars = {**run.history.scalars, "grad_norm": np.where(known, norms, np.nan)}
    limit = Case(replace(run, history=replace(run.history, scalars=scalars))).healthy_grad_norm
    assert limit == pytest.approx(np.quantile(norms, 0.9), rel=0.1)
    assert limit >= np.median(norms)


def test_the_norm_to_clip_at_is_no_less_than_the_usual_one():
    norms = np.concatenate([np.full(6, 0.01), np.full(194, 3.0)])  # ten times the first norms is less than the usual
    case = Case(Build(steps=200).loss(falling(200)).scalar("grad_norm", norms).build())
    assert case.healthy_grad_norm == 3.0


@pytest.mark.parametrize(("lowest", "said"), [(-9999.0, True), (-2.1, False)])
def test_targets_that_are_far_off_too_are_said_in_the_fix(lowest, said):
    build = one_late_gap()
    about = {"kind": "mse", "samples": 560, "max": 1.7, "mean": 0.0, "std": 0.8, "integral": False, "values": {}}
    build.fact("targets", 64, **about, batches=10, min=-1.6).fact("targets", 199, **about, batches=30, min=lowest)
    first = diagnose(build.build()).hypotheses[0]
    assert first.cause == "bad_batch"
    assert ("Targets are far off, too (-9999, usual are up to 1.7 in size)" in first.remedy.text) is said
    assert ("print((target.abs() > 5.1).nonzero())" in first.remedy.code) is said
