"""The score: explained to the point, monotone, None where nothing is known; on real trainings good and bad."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.corpus import load, record
from tests.health.scalar_runs import HandRecord, run_of
from torch import nn

from neuraldbg import NeuralDbg, Run
from neuraldbg.explain import diagnose
from neuraldbg.health import assess
from neuraldbg.health.health_score import POINTS, WEIGHTS, Finding, deductions_of, points_of, score_of
from neuraldbg.nouns import Diagnosis, Event, Hypothesis, Remedy

if TYPE_CHECKING:
    from neuraldbg.nouns.training_health import Health

N = 200
FALLING = 0.3 + 2 * np.exp(-np.arange(N) / 60) + np.random.default_rng(0).normal(0, 0.02, N)
FINDINGS = st.builds(Finding, st.sampled_from(sorted(POINTS)), st.floats(0, 1), st.just("found"), st.just("somewhere"))
UNJUDGED = st.dictionaries(st.sampled_from([name for name in WEIGHTS if name != "diagnosis"]), st.just("not seen"))


def judged(**curves) -> Health:
    run = run_of(**curves)
    return assess(run, diagnose(run))


# ---------------------------------------------------------------- the tables


def test_the_weights_are_the_whole_and_no_finding_outweighs_its_aspect():
    assert sum(WEIGHTS.values()) == 100
    for aspect, low, high in POINTS.values():
        assert 0 < low <= high <= WEIGHTS[aspect]
    assert POINTS["failing"][1] > POINTS["suspect"][2] >= POINTS["suspect"][1] >= POINTS["inconclusive"][2]
    assert POINTS["failing"][1] >= 50, "a failing run has at most half of the points"


@given(st.lists(FINDINGS, max_size=8), FINDINGS, UNJUDGED)
def test_a_further_finding_never_raises_the_score(findings, more, unjudged):
    before, after = (score_of(deductions_of(found, unjudged)) for found in (findings, [*findings, more]))
    assert 0 <= after <= before <= 100


@given(st.lists(FINDINGS, min_size=1, max_size=8), st.floats(0, 1), UNJUDGED)
def test_a_worse_finding_never_raises_the_score(findings, severity, unjudged):
    first = findings[0]
    worse = [replace(first, severity=max(first.severity, severity)), *findings[1:]]
    assert score_of(deductions_of(worse, unjudged)) <= score_of(deductions_of(findings, unjudged))
    assert points_of(worse[0]) >= points_of(first)


@given(st.lists(FINDINGS, max_size=8), UNJUDGED)
def test_the_deductions_add_up_to_what_is_missing(findings, unjudged):
    taken = deductions_of(findings, unjudged)
    assert score_of(taken) == pytest.approx(100 - sum(one.points for one in taken), abs=0.5)
    assert not {one.aspect for one in taken} & set(unjudged)


# ---------------------------------------------------------------- runs by hand


def test_a_falling_loss_by_hand_is_healthy_and_what_is_unknown_is_listed():
    health = judged(loss=FALLING)
    assert health.verdict == "healthy"
    assert health.score == 100
    assert {one.what for one in health.unjudged} == {"gradients", "generalisation", "resources"}
    assert any(one.source == "convergence" for one in health.recommendations)


@pytest.mark.parametrize("values", [[], [2.0], [2.0, 1.9], [2.0, 1.9, 1.8, 1.7]])
def test_too_little_has_no_score_and_says_why(values):
    health = judged(loss=values)
    assert health.score is None
    assert health.reason.startswith("not enough data")
    assert health.unjudged
    assert "not scored" in str(health)


def test_each_fault_takes_points_and_several_take_more():
    clean = judged(loss=FALLING)
    spiky = FALLING.copy()
    spiky[[80, 130]] = 60.0
    broken = FALLING.copy()
    broken[120:] = np.nan
    risen = np.concatenate([FALLING[:100], np.linspace(0.6, 40, 100)])
    scores = [judged(loss=values).score for values in (spiky, broken, risen)]
    assert all(score < clean.score for score in scores)
    assert judged(loss=broken).score <= 50
    assert judged(loss=risen).score <= 50
    assert any("spike" in one.what for one in judged(loss=spiky).deductions)


VERDICTS = st.sampled_from(("healthy", "inconclusive", "suspect", "failing"))


@settings(max_examples=25, deadline=None)
@given(VERDICTS, st.floats(0, 1), st.integers(0, 3), VERDICTS, st.floats(0, 1), st.integers(0, 3))
def test_a_run_with_more_wrong_never_scores_higher(verdict, sure, spikes, worse, surer, more):
    """The same numbers with a worse verdict, a surer cause and further events."""
    order = ("healthy", "inconclusive", "suspect", "failing")
    verdict, worse = sorted((verdict, worse), key=order.index)
    sure, surer = sorted((sure, surer))
    base = run_of(loss=FALLING[:60])

    def made(verdict: str, sure: float, spikes: int) -> Health:
        events = tuple(Event("loss_spike", "loss", 10 * i, 10 * i, details={"stream": 0}) for i in range(spikes))
        cause = Hypothesis("lr_too_high", "optimisation", sure, "a rate", remedy=Remedy("Lower it."))
        return assess(replace_events(base, events), Diagnosis(verdict, "said", events=events, hypotheses=(cause,)))

    one, other = made(verdict, sure, spikes), made(worse, surer, spikes + more)
    assert other.score <= one.score
    if worse == "failing":
        assert other.score <= 50


def replace_events(run, events):
    return type(run)(run.info, run.layout, run.history, run.facts, events, run.steps)


def test_the_remedies_of_likely_causes_come_first_each_with_its_reason():
    likely = Hypothesis("lr_too_high", "optimisation", 0.9, "a rate of 10", remedy=Remedy("Lower it."))
    guess = Hypothesis("bad_batch", "data", 0.2, "a batch", remedy=Remedy("Look at it."))
    run = run_of(loss=FALLING)
    advice = assess(run, Diagnosis("failing", "said", hypotheses=(likely, guess))).recommendations
    assert [one.source for one in advice] == ["cause lr_too_high"], "to train longer is no advice for a failing run"
    assert "a rate of 10" in advice[0].reason


def test_an_evaluation_that_rises_takes_points_and_says_where_to_stop():
    evaluation = np.where(np.arange(N) % 20 == 19, 0.8 + ((np.arange(N) - 80) / 100) ** 2, np.nan)
    health = judged(loss=FALLING, eval_loss=evaluation)
    assert any(one.aspect == "generalisation" for one in health.deductions)
    assert any("step 79" in one.text for one in health.recommendations)
    assert "generalisation" not in {one.what for one in health.unjudged}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.dictionaries(
        st.sampled_from(["loss", "lr", "eval_loss", "metric/x", "batch_size", "resident", "duration"]),
        st.floats(width=32), max_size=4)), max_size=25)
)  # fmt: skip
def test_any_numbers_by_hand_are_judged_without_an_error(rows):
    made = HandRecord()
    for step, values in rows:
        made.put_scalars(step, values)
    health = assess(made.record(), made.diagnose())
    assert health.score is None or 0 <= health.score <= 100
    assert str(health)
    json.loads(health.to_json())
    assert "<" in health._repr_html_()


# ---------------------------------------------------------------- real trainings


def trained(out, lr, *, clear=True):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with NeuralDbg(model, out=out, overhead=None) as dbg:
        for x in torch.randn(150, 32, 8):
            if clear:
                optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True)).backward()
            optimizer.step()
    return dbg


def test_a_good_and_a_bad_training_and_the_saved_run_says_the_same(tmp_path):
    good, bad = trained(tmp_path / "good", 0.02), trained(tmp_path / "bad", 0.1, clear=False)
    assert good.health().score >= 90
    assert good.health().parameters.parameters == 8 * 64 + 64 + 64 + 1
    assert good.health().parameters.samples_seen == 150 * 32
    worse = bad.health()
    assert worse.score <= 20
    assert worse.deductions[0].evidence == "diagnosis"
    assert {one.aspect for one in worse.deductions} >= {"diagnosis", "convergence", "numbers", "gradients"}
    assert worse.recommendations[0].source == "cause missing_zero_grad"
    assert Run.load(tmp_path / "bad").health().to_dict() == worse.to_dict()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["digits_mlp", "house", "deep_sigmoid_stack", "clip_before_backward", "constant_weights"]
)
def test_programs_of_the_corpus(name):
    run, diagnosis = record(load()[name])
    score = assess(run, diagnosis).score
    assert score >= 90 if load()[name].golden.healthy else score <= 50
