"""Verdict, summary and what could not be judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.explain.run_builder import Build, falling, flat
from tests.explain.stories import STORIES

from neuraldbg.explain import diagnose, explanations
from neuraldbg.explain.evidence.case import Case
from neuraldbg.explain.evidence.loss_curve import LossSummary
from neuraldbg.nouns import Fact, Outcome, RunRecord, Series


def series(values) -> Series:
    n = len(values)
    return Series(np.arange(n), np.asarray(values, dtype=float), np.ones(n, np.int64))


def test_a_run_without_steps_says_what_was_looked_for_and_found():
    found = diagnose(RunRecord())
    assert found.verdict == "inconclusive"
    for part in ("steps of torch optimizers", "backward passes", "torch modules", "0 optimizer steps", "no model"):
        assert part in found.summary
    assert "called" not in found.summary
    assert found.unjudged


def test_a_few_steps_are_inconclusive_unless_something_is_certain():
    assert diagnose(Build(steps=5).build()).verdict == "inconclusive"
    certain = Build(steps=9).loss_term(fed_by=["softmax"], normalised=True)
    assert diagnose(certain.build()).verdict == "suspect"


def test_a_script_that_crashed_has_failed_whatever_the_error():
    build = Build()
    build.outcome = Outcome("raised", "FileNotFoundError: no such file: 'val.csv'", "train.py:40")
    run = build.build()
    found = diagnose(run)
    assert (found.verdict, found.hypotheses) == ("failing", ())
    said = (
        "crashed after 60 steps, at train.py:40, with FileNotFoundError: no such file: 'val.csv'. Until then the loss"
    )
    assert said in found.summary
    (first,) = explanations(run, found)
    assert (first.cause, first.failure) == ("unknown", "crash")
    assert "FileNotFoundError" in first.sentence
    assert "train.py:40" in first.remedy.text
    build.outcome = Outcome("raised", "SystemExit: 1", "train.py:40")
    assert diagnose(build.build()).verdict == "healthy"


def test_a_crash_is_not_blamed_on_another_fault():
    build = Build(steps=60).loss_term(fed_by=["softmax"], normalised=True)
    build.outcome = Outcome("raised", "KeyError: 'label'", "train.py:40")
    run = build.build()
    found = diagnose(run)
    assert found.verdict == "failing"
    assert "because of" not in found.summary
    assert "Another fault was found" in found.summary
    assert [one.cause for one in explanations(run, found)] == ["unknown", "double_softmax"]


def test_an_interrupted_healthy_run_is_healthy():
    build = Build()
    build.outcome = Outcome("interrupted")
    found = diagnose(build.build())
    assert found.verdict == "healthy"
    assert "interrupted" in found.summary


def test_a_halted_run_is_not_healthy():
    build = Build(steps=12)
    build.outcome = Outcome("halted", "gradient norm 230 of fc1 exceeds 100")
    found = diagnose(build.build())
    assert found.verdict in ("suspect", "failing")
    assert "gradient norm 230" in found.summary


def test_nan_without_a_known_cause_is_failing_and_abstains():
    found = diagnose(Build().ruin(30).build())
    assert found.verdict == "failing"
    assert all(h.confidence < 0.5 for h in found.hypotheses)
    assert "NaN at step 30" in found.summary


def test_a_learning_rate_that_rose_just_before_is_the_cause_and_is_dated():
    def found(step, factor):
        build = Build().ruin(30)
        return diagnose(build.scalar("lr", 0.1 * factor, slice(step, None)).build())

    plain = found(28, 1.0)
    assert all(h.confidence < 0.5 for h in plain.hypotheses)
    late = found(28, 10.0)
    top = late.hypotheses[0]
    assert (top.cause, top.step) == ("lr_too_high", 28)
    assert top.confidence > 0.5
    assert "a learning rate of 1 with SGD, which rose from 0.1 to 1 at step 28" in late.summary
    for other in (found(5, 10.0), found(28, 0.1), found(40, 10.0)):  # a warm-up, a fall, a rise after the end
        assert all(h.confidence < 0.5 for h in other.hypotheses)
    # Back at a rate with which it had trained before, as at a warm restart: told, and no cause.
    build = Build().ruin(30).scalar("lr", 0.001, slice(20, 28))
    again = diagnose(build.build())
    assert all(h.confidence < 0.5 for h in again.hypotheses)
    assert "the learning rate rose from 0.001 to 0.1 at step 28" in again.summary


def test_a_flat_loss_without_a_cause_is_suspect():
    found = diagnose(Build(steps=200).loss(flat(200)).build())
    assert found.verdict == "suspect"
    assert "None of the known causes" in found.summary


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("noisy descent", falling(200, 2.3, 1.2, 0.3)),
        ("converged long ago", np.concatenate([falling(100, 2.3, 0.01, 0.001), np.full(300, 0.01)])),
        ("trained before", 0.05 + np.random.default_rng(3).normal(0, 0.01, 200).clip(-0.04)),
        ("single spike that recovers", np.where(np.arange(200) == 120, 9.0, falling(200))),
        ("policy gradient around zero", np.random.default_rng(4).normal(0, 0.3, 300)),
        ("negative log density", falling(200, 3.0, -5.0)),
    ],
)
def test_no_false_alarm_from_the_loss_alone(name, values):
    found = diagnose(Build(steps=len(values)).loss(values).build())
    assert found.verdict == "healthy", (name, found.summary)
    assert found.hypotheses == ()


def test_a_gan_whose_losses_do_not_fall_is_healthy():
    build = Build(steps=200).loss(0.7 + 0.4 * np.abs(np.sin(np.arange(200) / 9)))
    build.stream = np.arange(200) % 2
    assert diagnose(build.build()).verdict == "healthy"


def test_events_alone_make_no_run_suspect():
    build = Build()
    for kind in ("vanishing_gradients", "dead_units", "update_ratio_high", "gradient_spike"):
        build.event(kind, 5, "fc2")
    assert diagnose(build.build()).verdict == "healthy"


def test_the_level_of_guessing_is_not_learning():
    """From a huge first loss down to ln 10: nothing was learnt from the inputs."""
    build = Build(steps=200).loss(np.concatenate([[40.0, 20.0, 6.0], flat(197)]))
    found = diagnose(build.build())
    assert found.verdict == "suspect"
    assert "guess by chance (2.3)" in found.summary


def test_a_guess_is_the_best_one_where_the_shares_of_the_labels_are_known():
    build = Build(steps=200).loss(np.concatenate([[40.0, 20.0, 6.0], flat(197)]))
    about = {"kind": "nll", "batches": 9, "samples": 288, "classes": 10, "distinct": 10, "entropy": 1.9}
    said = diagnose(build.fact("targets", **about).build()).summary
    assert "no better than a constant guess from the shares of the labels (1.9)" in said
    about["entropy"] = 2.6
    said = diagnose(build.fact("targets", **about).build()).summary
    assert "hardly better than a constant guess from the shares of the labels (2.6)" in said


def test_a_layer_whose_bias_has_a_gradient_is_not_called_one_without():
    build = Build(steps=200).loss(np.concatenate([[40.0, 20.0, 6.0], flat(197)]))
    for layer, told in (("fc1", {}), ("fc2", {"parameters": ["fc2.weight"]})):
        build.event("vanishing_gradients", 0, layer, confidence=0.6, how="zero", zero=True, always=True, **told)
    assert "the gradient of fc1 was exactly 0 in all 200 steps" in diagnose(build.build()).summary


def test_a_layer_without_any_gradient_is_named_beside_no_cause():
    build = Build(steps=200).loss(np.concatenate([[40.0, 20.0, 6.0], flat(197)]))
    build.event("vanishing_gradients", 0, "fc1", confidence=0.6, how="zero", zero=True, always=True)
    run = build.build()
    found = diagnose(run)
    assert "the gradient of fc1 was exactly 0 in all 200 steps" in found.summary
    first = explanations(run, found)[0]
    assert first.cause == "unknown"
    said = [one.statement for one in first.evidence]
    assert "the gradient of fc1 was exactly 0 in all 200 steps" in said
    assert not any(one.startswith("vanishing gradients") for one in said)
    assert first.remedy.text.startswith("Look at what lies between fc1 and the loss")


def test_a_regression_at_the_level_of_guessing_may_have_nothing_to_learn():
    target = {"mean": 0.0, "std": 1.0, "min": -2.0, "max": 2.0, "nonfinite": 0, "count": 32}
    term = {"kind": "mse", "reduction": "mean", "target": target}
    rng = np.random.default_rng(0)
    build = Build(steps=200).loss(np.concatenate([[3.0, 2.0], 1.0 + 0.2 * rng.standard_normal(198)]))
    build.facts = [f for f in build.facts if f.key != "loss"]
    build.facts.append(Fact(0, "loss", {"stream": 0, "ops": ["mseloss"], "terms": [term]}))
    found = diagnose(build.build())
    assert found.verdict == "inconclusive"
    assert "constant guess (1)" in found.summary
    build = Build(steps=200).loss(np.concatenate([[1.3, 1.1], 0.88 + 0.2 * rng.standard_normal(198)]))
    build.facts = [f for f in build.facts if f.key != "loss"]
    build.facts.append(Fact(0, "loss", {"stream": 0, "ops": ["mseloss"], "terms": [term]}))
    assert diagnose(build.build()).verdict == "healthy", "a weak relation is one"


def test_blind_spots_are_said():
    build = Build()
    build.facts = [f for f in build.facts if f.key != "loss"]
    build.coverage = {"never_fired": ["head.aux"], "without_grad": ["teacher"], "left_compiled": ["cuda"]}
    reasons = " ".join(f"{u.what}: {u.reason}" for u in diagnose(build.build()).unjudged)
    assert "no graph of a loss was seen" in reasons
    assert "activations of head.aux: they were never called as modules" in reasons
    assert "activations of teacher: they are only called without gradients (no_grad), where nothing is read" in reasons
    assert (
        "activations and their gradients in compiled graphs on cuda: reading them would slow down each step" in reasons
    )


def test_run_facts_and_overhead():
    about = diagnose(Build().build()).run
    assert about["steps"] == 60
    assert about["overhead_ratio"] == pytest.approx(0.0005 / 0.0095)
    assert about["outcome"]["kind"] == "completed"


def test_loss_summary_levels():
    loss = LossSummary(series(np.concatenate([falling(50), [np.nan, 5.0]])))
    assert loss.nonfinite_from == 50
    assert not loss.ends_nonfinite
    assert LossSummary(series([])).learned is False
    assert LossSummary(series(falling(100))).learned
    assert LossSummary(series([2.3, 900.0])).diverged
    assert not LossSummary(series([2.3, 2.9])).diverged
    assert LossSummary(series(np.concatenate([falling(100), np.full(50, 2.0)]))).diverged  # learnt, and lost it again


def test_onset_is_the_first_bad_step():
    assert Case(STORIES["unstable_op"].fires().build()).onset == 30
    assert Case(Build().build()).onset is None


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"failed": {"reading parameters and gradients": 23}}, "reading parameters and gradients failed 23 times"),
        (
            {"unread": {"3 other threads": "trained and were not followed"}},
            "3 other threads trained",
        ),
    ],
)
def test_a_run_is_not_called_healthy_if_what_could_not_be_read_may_hold_the_fault(seen, said):
    run = Build().build()
    assert diagnose(run).verdict == "healthy"
    found = diagnose(replace(run, info=replace(run.info, coverage={**run.info.coverage, **seen})))
    assert found.verdict == "inconclusive"
    assert said in found.summary
    assert found.unjudged[0].reason.endswith("; the result may be incomplete")


def test_a_failing_run_stays_failing_and_says_what_could_not_be_read():
    build = Build(steps=200).loss_term(fed_by=["softmax"], normalised=True)
    run = build.build()
    before = diagnose(run)
    seen = {**run.info.coverage, "failed": {"reading batches": 1}}
    found = diagnose(replace(run, info=replace(run.info, coverage=seen)))
    assert (found.verdict, found.summary) == (before.verdict, before.summary)
    assert found.verdict != "inconclusive"
    said = found.unjudged[0]
    assert (said.what, said.reason) == ("reading batches", "failed 1 time; the result may be incomplete")


def test_the_headline_is_the_summary_without_the_cause():
    found = diagnose(Build(steps=60).loss(flat(60)).loss_term(fed_by=["softmax"], normalised=True).build())
    first = found.hypotheses[0]
    assert first.cause == "double_softmax"
    assert (first.title, first.label) == ("Softmax applied twice", "Softmax applied twice · double_softmax")
    assert found.headline
    assert first.sentence in found.summary
    assert first.sentence not in found.headline
    written = found.to_dict()
    assert written["schema"] == "neuraldbg.diagnosis/1"
    assert written["hypotheses"][0]["title"] == first.title
    assert diagnose(Build(steps=120).loss(falling(120)).build()).headline == ""


def test_lines_of_a_kind_without_a_name_are_not_shown():
    """A damaged or foreign file may have them: a cause that asks for no line has none then."""
    line = ["train.py", 3, "loss.backward()"]
    for build in (Build().loss_term(fed_by=["softmax"], normalised=True), STORIES["missing_zero_grad"].fires()):
        build.facts = [fact for fact in build.facts if fact.key != "places"]
        build.fact("places", **{"": [line], "?": [line]})
        run = build.build()
        found = diagnose(run)
        assert found.hypotheses
        assert all(not one.places for one in explanations(run, found))


ONE_BATCH = {"id": "model:one_batch", "name": "one_batch", "model": "model", "judged": True, "still": []}


@pytest.mark.parametrize(
    ("attempts", "still", "said"),
    [
        ([["SGD", 0.1, 40, 2.3, 0.1, True]], [], "look at the data, and at the loop around the model"),
        ([["SGD", 1e-6, 300, 2.3, 2.3, False], ["Adam", 3e-3, 90, 2.3, 0.4, True]], [], "look at the learning rate"),
        (
            [["SGD", 0.1, 300, 2.3, 2.3, False], ["Adam", 3e-3, 300, 2.3, 2.25, False]],
            ["fc1"],
            "(Adam at 0.003: loss from 2.3 to 2.25 in 300 steps); the weights of fc1 do not move, so look at the model",
        ),
        ([["SGD", 0.1, 300, 2.3, 1.5, False], ["Adam", 3e-3, 300, 2.3, 1.4, False]], [], ""),
    ],
)
def test_a_batch_learnt_by_heart_tells_the_side_of_a_fault_without_a_cause(attempts, still, said):
    build = Build(steps=200).scalar("loss", flat(200))
    before = diagnose(build.build())
    assert not [one for one in before.hypotheses if one.confidence >= 0.5]
    build.fact("experiment", **ONE_BATCH | {"attempts": attempts, "still": still})
    found = diagnose(build.build())
    assert said in found.summary
    assert ("one batch" in found.summary) is bool(said)
    assert (found.verdict, found.hypotheses) == (before.verdict, before.hypotheses)
    assert (
        "one batch"
        not in diagnose(Build(steps=200).fact("experiment", **ONE_BATCH | {"attempts": attempts}).build()).summary
    )
