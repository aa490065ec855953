"""Changes of a program before a failure: dated, quoted, judged by what follows them, and no alarm without harm."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.explain.evidence.test_late_losses import sound
from tests.explain.run_builder import Build
from tests.explain.test_mostly_light_runs import lightened

from neuraldbg.explain import diagnose
from neuraldbg.explain.evidence.case import Case
from neuraldbg.explain.evidence.setbacks import first_setback

STEPS, AT = 1500, 1200
FULL = (*range(16), 32, 64, 128, 256, 512, 1024, *range(1201, 1217))


def late(*, ruin: bool = True, level: float = 8.0) -> Build:
    """A training that is sound up to step AT, and lost from it on if ``ruin``."""
    values = sound(STEPS)
    if ruin:
        values[AT:] = level * np.exp(0.1 * np.random.default_rng(0).standard_normal(STEPS - AT))
    return Build(steps=STEPS).loss(values)


def change(build: Build, what: str, before: float, after: float, since: int = 1187, until: int = 1202, **more) -> Build:
    value = {"stream": 0, "name": "", "names": [], **more}
    return build.fact("change", until, what=what, before=before, after=after, since=since, until=until, **value)


def thin(build: Build):
    return lightened(build.build(), FULL)


def test_the_rate_in_force_is_quoted_with_the_step_at_which_it_rose():
    found = diagnose(thin(late().scalar("lr", 5.0, slice(AT - 2, None))))
    top = found.hypotheses[0]
    assert (top.cause, top.step, top.since) == ("lr_too_high", AT - 2, None)
    assert "a learning rate of 5 with SGD, which rose from 0.1 to 5 at step 1198" in found.summary
    assert not any("the same learning rate" in one.statement for one in top.evidence)
    assert "0.1" in top.remedy.text
    assert top.confidence > 0.9


def test_a_rate_that_crept_up_is_quoted_too():
    found = diagnose(
        thin(late().scalar("lr", np.geomspace(0.1, 20.0, 600), slice(AT - 600, AT)).scalar("lr", 20.0, slice(AT, None)))
    )
    top = found.hypotheses[0]
    assert top.cause == "lr_too_high"
    assert "in small steps" in top.sentence
    assert top.step <= AT


def test_a_restart_at_a_rate_that_was_well_before_is_no_cause():
    wave = 0.1 * (1 + np.cos(np.pi * (np.arange(STEPS) % 400) / 400)) / 2 + 1e-5
    found = diagnose(thin(late().scalar("lr", wave)))
    assert all(h.cause != "lr_too_high" or h.confidence < 0.5 for h in found.hypotheses)
    assert "the learning rate rose from 1.2e-5" not in diagnose(thin(late(ruin=False).scalar("lr", wave))).summary


@pytest.mark.parametrize(
    ("what", "before", "after", "cause", "said"),
    [
        ("momentum", 0.9, 0.999, "momentum_too_high", "momentum rose from 0.9 to 0.999 between steps 1187 and 1202"),
        (
            "weight_decay",
            1e-4,
            5.0,
            "weight_decay_too_high",
            "weight decay rose from 0.0001 to 5 between steps 1187 and",
        ),
    ],
)
def test_a_setting_that_was_raised_is_the_cause_and_its_interval_is_told(what, before, after, cause, said):
    build = change(late(), what, before, after)
    group = {"lr": 0.1, "params": 6}
    build.fact("optimizer", 1202, **build.group(groups=[{**group, what: after}]))
    found = diagnose(thin(build))
    top = found.hypotheses[0]
    assert (top.cause, top.step, top.since) == (cause, AT, 1187)
    assert said in top.sentence
    assert "since step" not in found.summary  # told once, as an interval
    assert str(top).startswith("Loss divergence originated in the training loop between steps 1187 and 1200")


def test_dropout_and_frozen_layers_of_a_change_are_named():
    build = late(level=2.0)
    build.layer("drop", "Dropout", p=0.1)
    top = diagnose(thin(change(build, "dropout", 0.1, 0.95, stream=None, name="drop"))).hypotheses[0]
    assert (top.cause, top.layer, top.step) == ("dropout_too_high", "drop", AT)
    assert "rose from 0.1 to 0.95 between steps 1187 and 1202" in top.sentence
    names = ["fc3.bias", "fc3.weight"]
    top = diagnose(thin(change(late(level=2.0), "trainable", 6, 4, stream=None, names=names))).hypotheses[0]
    assert (top.cause, top.layer, top.step) == ("param_frozen", "fc3", AT)


def test_a_change_is_told_where_no_cause_is_known():
    found = diagnose(thin(change(late(), "beta2", 0.999, 0.5)))
    assert "None of the known causes explains it; the second beta fell from 0.999 to 0.5 between" in found.summary


def test_changes_without_harm_are_no_alarm():
    build = late(ruin=False).scalar("lr", 0.5, slice(AT, None)).scalar("batch_size", 64, slice(AT, None))
    change(build, "momentum", 0.5, 0.9)
    change(build, "trainable", 4, 6, stream=None, names=["fc1.weight"])
    change(build, "optimizer", 0, 0)
    run = thin(build)
    assert diagnose(run).verdict == "healthy"
    assert Case(run).changes == ()


def test_a_change_long_before_or_after_the_onset_is_not_held_to_be_its_reason():
    for at in (600, 1300):
        run = thin(change(late(), "momentum", 0.5, 0.9, since=at - 20, until=at))
        assert Case(run).change("momentum") is None
    assert diagnose(thin(late().scalar("lr", 5.0, slice(300, None)))).hypotheses[:1] == ()


def test_inputs_in_other_units_are_a_change_between_two_readings():
    build = late()
    for stat, value in (("std", 0.0), ("rms", 0.0), ("min", 0.0), ("max", 0.0)):
        build.stat("input", "", stat, value, slice(AT, None))
    top = diagnose(thin(build)).hypotheses[0]
    # Between two readings, 1024 and 1201, the loss tells the step.
    assert (top.cause, top.step, top.since) == ("input_ignored", AT, None)
    assert f"from step {AT} on all values of the inputs are 0" in top.sentence


def test_targets_in_other_units_and_a_sign_turned_round_are_changes_of_the_loss():
    plain = {"kind": "mse", "classes": 0, "target_dtype": "float32", "sign": 1}
    target = {"mean": 0.0, "std": 1.5, "min": -4.0, "max": 4.0}
    build = late(level=9e3).loss_term(**plain, target=target)
    for step in (256, 512, 1024):
        build.fact("loss", step, stream=0, ops=[], terms=[build.term(**plain, target={**target, "std": 1.4})])
    build.fact("loss", 1201, stream=0, ops=[], terms=[build.term(**plain, target={**target, "std": 140.0})])
    top = diagnose(thin(build)).hypotheses[0]
    assert (top.cause, top.step) == ("unnormalised_targets", AT)
    assert "their standard deviation rose from 1.4 to 140 between steps 1024 and 1201" in top.sentence
    values = sound(STEPS)
    values[AT - 40 : AT] *= -1
    values[AT:] = np.nan
    build = Build(steps=STEPS).ruin(AT).loss(values).loss_term(sign=1)
    build.fact("loss", AT - 8, stream=0, ops=[], terms=[build.term(sign=-1)])
    top = diagnose(thin(build)).hypotheses[0]
    assert (top.cause, top.step, top.since) == ("loss_sign_flip", AT - 40, None)  # dated by the first negative loss


def test_labels_that_no_longer_belong_to_their_inputs_jump_to_the_level_of_a_guess():
    def run(**more):
        values = sound(STEPS, last=0.1)
        values[AT:] = np.log(10) * np.exp(0.02 * np.random.default_rng(0).standard_normal(STEPS - AT))
        values[AT : AT + 5] = 7.0
        build = Build(steps=STEPS).loss(values)
        for name, value in more.items():
            build.scalar(name, value, slice(AT - 1, None))
        return diagnose(thin(build))

    top = run().hypotheses[0]
    assert (top.cause, top.step) == ("label_noise", AT)
    assert all(h.cause != "label_noise" for h in run(grad_norm=50.0).hypotheses)  # a large step came before
    assert all(h.cause != "label_noise" for h in run(lr=2.0).hypotheses)


def test_a_cause_that_full_steps_date_lies_between_two_of_them():
    build = late(level=3.0)
    build.fact("modes", 1201, model="Net", training=False, eval_layers=["drop"], mode_layers=["drop"])
    build.layer("drop", "Dropout", p=0.1).scalar("eval_layers", 1.0, slice(AT, None))
    top = diagnose(thin(build)).hypotheses[0]
    assert (top.cause, top.step, top.since) == ("eval_mode_left_on", AT, 1024)


def cut(*, told: bool = True, again: bool = False, by_turns: int = 0, layer: str = "fc1", until: int = AT) -> Build:
    """Return a training in which a layer loses its gradient at a step; ``told`` with the cut behind it."""
    build = late(ruin=False)
    names = [f"{layer}.weight", f"{layer}.bias"]
    for k in range(by_turns):
        change(build, "gradients", 6.0 - 2 * (k % 2), 4.0 + 2 * (k % 2), 20 * k + 19, 20 * k + 20, names=names)
    change(build, "gradients", 6.0, 4.0, until - 8, until, names=names)
    if again:
        change(build, "gradients", 4.0, 6.0, until + 92, until + 100, names=names)
    place = ["train.py", 12, "x = self.fc2(x.detach())"]
    seen = {"after": layer, "before": "fc2", "how": "shared", "place": place, "end": place}
    lost = {"model": "Net", "cut": seen if told else None, "no_grad": {}, "unreached": [], "lost": [layer]}
    return build.fact("cuts", until + 4, **lost)


def test_a_layer_that_loses_its_gradient_behind_a_cut_is_cut_from_that_step_on():
    found = diagnose(thin(cut()))
    (top,) = found.hypotheses
    assert (found.verdict, top.cause, top.step, top.since) == ("suspect", "detached_graph", AT, AT - 8)
    assert "fc1 got gradients up to step 1192, and none from step 1200 on" in [one.statement for one in top.evidence]
    assert [(place.line, place.what) for place in top.places] == [(12, "the graph ends")]


@pytest.mark.parametrize(
    "build",
    [cut(told=False), cut(again=True), cut(by_turns=6), cut(until=STEPS - 20)],
    ids=["left_out_of_the_loss", "for_a_while", "by_turns", "just_now"],
)
def test_a_layer_that_is_left_out_for_a_reason_is_no_alarm(build):
    found = diagnose(thin(build))
    assert (found.verdict, found.hypotheses) == ("healthy", ()), found.summary


def test_a_loss_that_is_cut_off_from_all_weights_is_named_with_its_step():
    every = [f"fc{i}.{name}" for i in (1, 2, 3) for name in ("weight", "bias")]
    build = change(late(ruin=False), "gradients", 6.0, 0.0, AT - 1, AT, names=every)
    top = diagnose(thin(build.scalar("grad_norm", 0.0, slice(AT, None)))).hypotheses[0]
    assert (top.cause, top.step, top.since) == ("detached_graph", AT, None)
    assert "a loss that is cut off from the model since step 1200" in top.sentence


def written(before: float, at_once: float, end: float, **more: object) -> Build:
    """Return a training whose weights were written to at a step, with its loss before, right after and at the end."""
    values = sound(STEPS)
    scale = before / float(np.median(values[AT - 50 : AT]))
    values[:AT] *= scale
    steps = np.arange(STEPS - AT)
    values[AT:] = end + (at_once - end) * np.exp(-steps / 20)
    values[AT:] *= np.exp(0.02 * np.random.default_rng(0).standard_normal(STEPS - AT))
    return change(Build(steps=STEPS).loss(values), "weights", None, 1.4, AT - 1, AT, names=["fc2.weight"], **more)


def test_weights_that_were_written_to_are_the_cause_of_what_they_cost():
    (top,) = diagnose(thin(written(0.05, 2.0, 0.4))).hypotheses
    assert (top.cause, top.layer, top.step, top.since) == ("weights_overwritten", "fc2", AT, None)
    said = [one.statement for one in top.evidence]
    assert any(
        "the loss was at 0.05" in one and f"fc2.weight, by 1.4 times their size at step {AT}" in one for one in said
    )
    assert any(re.search(rf"jumped to 1\.9\d* at step {AT}, and ends at 0\.39", one) for one in said)


def test_weights_that_were_written_to_without_a_loss_that_lasts_are_no_alarm():
    for end in (0.05, 0.03):
        found = diagnose(thin(written(0.05, 2.0, end)))
        assert (found.verdict, found.hypotheses) == ("healthy", ()), found.summary
    assert diagnose(thin(written(0.5, 0.05, 0.04))).verdict == "healthy", "a better state"


def test_a_training_that_begins_anew_with_another_optimizer_is_meant():
    build = change(written(0.05, 2.0, 0.4), "optimizer", None, None, AT - 1, AT)
    assert all(one.cause != "weights_overwritten" or one.confidence < 0.5 for one in diagnose(thin(build)).hypotheses)


def jumps(at_once: float, end: float) -> Build:
    """Return a training whose loss falls from 2.3 to 0.5, jumps at a step, and falls to another level."""
    values = 0.5 + 1.8 * np.exp(-np.arange(STEPS) / 100) + np.random.default_rng(0).normal(0, 0.02, STEPS)
    values[AT:] += end - 0.5 + (at_once - end) * np.exp(-np.arange(STEPS - AT) / 20)
    return Build(steps=STEPS).loss(values)


def test_a_loss_that_jumps_at_a_change_and_does_not_come_back_is_lost_progress_though_it_falls_again():
    found = diagnose(thin(jumps(1.6, 0.8).scalar("lr", 2.0, slice(AT, None))))
    assert (found.hypotheses[0].cause, found.hypotheses[0].step) == ("lr_too_high", AT)
    assert re.search(rf"was at 0\.5\d*, jumped to 1\.5\d* at step {AT}, and ends at 0\.8", found.summary), found.summary
    before = jumps(1.6, 0.8).scalar("lr", 2.0, slice(0, 20)).scalar("lr", 2.0, slice(AT, None))
    assert diagnose(thin(before)).verdict == "healthy", "a rate that was well before"
    for build in (jumps(0.8, 0.6), jumps(1.6, 0.5), jumps(1.6, 0.4)):
        assert diagnose(thin(build.scalar("lr", 2.0, slice(AT, None)))).verdict == "healthy"


def test_a_loss_that_falls_without_end_is_no_success():
    plain = {"kind": "mse", "classes": 0, "target_dtype": "float32", "sign": 1}
    build = jumps(0.5, 0.5).loss_term(**plain)
    values = build.scalars["loss"].copy()
    values[AT:] = -np.exp(np.linspace(0, 25, STEPS - AT))
    found = diagnose(thin(build.loss(values)))
    assert found.verdict == "failing"
    assert f"was never below 0 up to step {AT - 1}, and fell to" in found.summary
    build.fact("loss", AT + 5, stream=0, ops=["neg"], terms=[build.term(**{**plain, "sign": -1})])
    assert [one.cause for one in diagnose(thin(build)).hypotheses] == ["loss_sign_flip"]


@pytest.mark.parametrize(
    ("ops", "reduction", "level", "named"),
    [
        (["nllloss", "logsoftmax"], "sum", 64.0, True),
        (["mul", "nllloss", "logsoftmax"], "mean", 100.0, True),
        (["mul", "nllloss", "logsoftmax"], "mean", 2.0, False),
    ],
)
def test_a_loss_that_grew_by_a_factor_is_named_with_the_step(ops, reduction, level, named):
    build = jumps(0.5, 0.5)
    values = build.scalars["loss"].copy()
    values[AT:] *= level * (1 + np.linspace(0, 3, STEPS - AT))
    build.loss(values).fact("loss", AT + 1, stream=0, ops=ops, terms=[build.term(reduction=reduction)])
    found = [one for one in diagnose(thin(build)).hypotheses if one.cause == "wrong_reduction" and one.confidence > 0.5]
    assert len(found) == named
    if named:
        assert (found[0].step, found[0].since) == (AT, None)


def test_gradients_that_are_no_longer_cleared_are_dated():
    build = late().scalar("stale_grad", np.nan)
    build.scalar("stale_grad", 0.0, slice(1, 16)).scalar("stale_grad", 1.0, slice(AT + 2, AT + 16))
    (top, *_) = diagnose(thin(build)).hypotheses
    assert (top.cause, top.step, top.since) == ("missing_zero_grad", AT, 15)


def test_a_softmax_that_comes_before_the_loss_from_a_step_on_is_dated():
    build = jumps(1.6, 1.55)
    graph = {"ops": ["nllloss", "logsoftmax"], "stream": 0}
    build.facts = [one for one in build.facts if one.key != "loss"]
    build.fact("loss", 0, terms=[build.term(sign=1)], **graph)
    given = {"min": 0.0, "max": 1.0, "mean": 0.1, "std": 0.2}
    doubled = build.term(chain=["softmax"], normalised=True, input=given, sign=1)
    build.fact("loss", AT + 1, terms=[doubled], **{**graph, "ops": [*graph["ops"], "softmax"]})
    top = diagnose(thin(build)).hypotheses[0]
    assert (top.cause, top.step, top.since) == ("double_softmax", AT + 1, 0)
    both = Build(steps=STEPS).loss(build.scalars["loss"])
    both.facts = [one for one in build.facts if one.key != "loss"]
    both.fact("loss", 0, terms=[doubled], **graph).fact("loss", AT + 1, terms=[doubled, doubled], **graph)
    assert diagnose(thin(both)).hypotheses[0].step == 0, "another term was added"


def test_a_small_rise_of_a_loss_that_has_hardly_fallen_is_no_setback():
    values = 2.3 + np.random.default_rng(0).normal(0, 0.01, STEPS)
    values[0] = 2.2
    values[AT:] += 0.13
    run = thin(Build(steps=STEPS).loss(values).scalar("lr", 2.0, slice(AT, None)))
    assert first_setback(Case(run)) is None
    values[AT:] += 0.3
    run = thin(Build(steps=STEPS).loss(values).scalar("lr", 2.0, slice(AT, None)))
    assert first_setback(Case(run)) is not None
