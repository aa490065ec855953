"""Explaining-away, several faults at once, and abstaining."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.explain.run_builder import Build, flat
from tests.explain.stories import STORIES

from neuraldbg.explain import CAUSES, Case, Finding, Tier, cause, diagnose
from neuraldbg.explain.verdict.calibration import fitted
from neuraldbg.explain.verdict.ranking import FLOOR, sigmoid, weigh
from neuraldbg.nouns import Evidence, Remedy


def by_cause(build: Build):
    return {h.cause: h for h in diagnose(build.build()).hypotheses}


def test_sigmoid():
    assert sigmoid(0) == 0.5
    assert sigmoid(2) == pytest.approx(1 / (1 + np.exp(-2)))
    assert 0 < sigmoid(-1e9) < sigmoid(1e9) <= 1


@pytest.mark.parametrize("name", ["wrong_reduction", "unnormalised_inputs", "missing_zero_grad", "init_scale_wrong"])
def test_a_specific_cause_stands_before_the_palliative_that_would_soften_it(name):
    build = STORIES[name].fires().scalar("update_ratio", 3.0, slice(0, 3)).event("update_ratio_high", 0)
    if name == "wrong_reduction":
        build.scalar("update_ratio", 0.5)
    found = diagnose(build.build()).hypotheses
    assert found[0].cause == name
    palliative = [h for h in found if h.cause == "lr_too_high"]
    for h in palliative:
        assert h.confidence < found[0].confidence
        assert any("explains the same symptoms" in e.statement and not e.supports for e in h.evidence)


def test_without_the_specific_cause_the_palliative_is_named():
    build = STORIES["missing_zero_grad"].fires().scalar("stale_grad", 0.0)
    build.scalar("update_ratio", 0.4).loss(np.concatenate([[2.3], 2.3 * np.exp(np.arange(59) / 6)]))
    found = diagnose(build.build()).hypotheses
    assert found[0].cause == "lr_too_high"
    assert found[0].confidence > 0.5  # the learning rate itself, 0.1, is a usual one


def test_nan_of_an_unstable_operation_is_not_blamed_on_the_learning_rate():
    found = by_cause(STORIES["unstable_op"].fires())
    assert "lr_too_high" not in found


def test_units_that_die_after_a_jump_are_the_learning_rates():
    found = by_cause(STORIES["lr_too_high"].fires())
    assert found["lr_too_high"].confidence > 0.9
    assert "dead_relu" not in found or found["dead_relu"].confidence < 0.5


def test_a_nan_kills_every_unit_and_dead_relu_stays_silent():
    build = STORIES["nonfinite_input"].fires().stat("activation", "act2", "dead", 64, slice(17, None))
    assert "dead_relu" not in by_cause(build)


def test_a_later_cause_does_not_explain_an_earlier_one_away():
    build = STORIES["lr_too_high"].fires()
    build.stat("input", "", "max", 900.0, 50).stat("input", "", "rms", 200.0, 50)
    found = by_cause(build)
    assert found["lr_too_high"].confidence > 0.9


def test_independent_certain_causes_are_all_listed():
    build = STORIES["missing_zero_grad"].fires().params(frozen=["fc2.weight", "fc2.bias"])
    build.loss_term(fed_by=["softmax"], normalised=True)
    found = by_cause(build)
    assert {"missing_zero_grad", "double_softmax"} <= set(found)
    assert min(found[name].confidence for name in ("missing_zero_grad", "double_softmax")) > 0.7


def entailing(name, *others):
    """All causes, one of which entails some others."""
    return tuple(replace(c, entails=frozenset(others)) if c.id == name else c for c in CAUSES)


def both_certain():
    return STORIES["missing_zero_grad"].fires().loss_term(fed_by=["softmax"], normalised=True)


def test_what_a_credible_cause_entails_stands_back_whatever_its_tier(monkeypatch):
    before = by_cause(both_certain())["double_softmax"]
    monkeypatch.setattr("neuraldbg.explain.CAUSES", entailing("missing_zero_grad", "double_softmax"))
    after = by_cause(both_certain())
    assert before.confidence > 0.7
    assert after["double_softmax"].confidence < 0.5
    assert after["missing_zero_grad"].rank == 1
    assert any("follows from it" in e.statement for e in after["double_softmax"].evidence)


def test_a_cause_that_is_not_there_makes_nothing_stand_back(monkeypatch):
    monkeypatch.setattr("neuraldbg.explain.CAUSES", entailing("missing_zero_grad", "double_softmax"))
    assert by_cause(STORIES["double_softmax"].fires())["double_softmax"].confidence > 0.7


def test_two_that_entail_each_other_both_stay(monkeypatch):
    pair = frozenset({"missing_zero_grad", "double_softmax"})
    both = tuple(replace(c, entails=pair - {c.id}) if c.id in pair else c for c in CAUSES)
    monkeypatch.setattr("neuraldbg.explain.CAUSES", both)
    found = by_cause(both_certain())
    assert min(found[name].confidence for name in pair) > 0.7


def test_confidence_is_what_the_calibration_says_of_the_evidence():
    found = by_cause(STORIES["missing_zero_grad"].fires())["missing_zero_grad"]
    left = sum(e.weight if e.supports else -e.weight for e in found.evidence)
    wanted = fitted().probability(Tier.CERTAIN, fitted().log_odds(Tier.CERTAIN, "missing_zero_grad", left))
    assert found.confidence == pytest.approx(wanted, abs=1e-3)


def test_symptoms_alone_name_no_cause():
    build = Build().loss(flat(60))
    for kind in ("vanishing_gradients", "dead_units", "update_ratio_high", "exploding_gradients", "loss_plateau"):
        build.event(kind, 0, "fc1")
    assert diagnose(build.build()).hypotheses == ()


def test_ranks_are_ordered_and_above_the_floor():
    for story in STORIES.values():
        found = diagnose(story.fires().build()).hypotheses
        assert [h.rank for h in found] == list(range(1, len(found) + 1))
        assert all(FLOOR <= h.confidence <= 0.99 for h in found)
        assert [h.confidence for h in found] == sorted((h.confidence for h in found), reverse=True)


def test_the_same_record_gives_the_same_diagnosis():
    run = STORIES["lr_too_high"].fires().build()
    assert diagnose(run).to_json() == diagnose(run).to_json()


def test_stale_parameters_rather_than_missing_ones():
    found = by_cause(STORIES["optimizer_stale_params"].fires())
    assert found["optimizer_stale_params"].rank == 1
    assert found.get("param_not_in_optimizer") is None or found["param_not_in_optimizer"].confidence < 0.5


def test_no_model_seen_means_no_stale_parameters():
    build = STORIES["optimizer_stale_params"].fires()
    build.layers.clear()
    assert "optimizer_stale_params" not in by_cause(build)


def collapsed(wiped_from: int):
    """A generator that collapses at step 32; from a step on half of the losses of each step are cleared."""
    build = STORIES["mode_collapse"].fires()
    wiped = np.where(np.arange(200) >= wiped_from, 1.0, np.nan)
    about = {"backwards": 2, "forwards": 2, "wiped": 1, "divisor": 1.0, "kinds": ["bce"], "by_hand": False}
    return build.scalar("wiped", wiped).fact("accumulation", stream=0, **about)


def test_a_fault_of_the_loop_comes_before_the_collapse_that_it_leads_to():
    found = diagnose(collapsed(0).build())
    wiped, mode = found.hypotheses[:2]
    assert (wiped.cause, mode.cause) == ("accumulation_wiped", "mode_collapse")
    assert mode.confidence < wiped.confidence
    assert any(not e.supports and e.statement.startswith("accumulation_wiped is at work") for e in mode.evidence)
    assert [(node.label, node.step) for node in found.chain.nodes] == [("accumulation_wiped", 0), ("mode collapse", 32)]
    assert found.chain.worth_showing
    assert "cleared before each" in found.summary


def test_the_threshold_of_a_collapse_is_what_its_earlier_spread_was_compared_with():
    found = diagnose(STORIES["mode_collapse"].fires().build()).hypotheses[0]
    fell = next(e for e in found.evidence if e.statement.startswith("at step 0 it was"))
    last = next(e for e in found.evidence if e.statement.startswith("for different noise"))
    assert fell.threshold == pytest.approx(3 * last.value)
    assert fell.value > fell.threshold


def test_a_collapse_without_such_a_fault_is_the_cause():
    found = diagnose(STORIES["mode_collapse"].fires().build())
    assert found.hypotheses[0].cause == "mode_collapse"
    assert not any("can lead to this" in e.statement for e in found.hypotheses[0].evidence)


def test_losses_that_rose_are_not_called_a_training_that_works():
    build = collapsed(0)
    fine = diagnose(build.build())
    assert fine.summary.startswith("The model trains, but a fault")
    risen = diagnose(build.loss(0.7 + np.linspace(0, 5, 200)).build())
    assert risen.verdict == "suspect"
    assert " rose from 0.7 to " in risen.headline
    assert "The model trains" not in risen.summary
    assert risen.headline.endswith("; a fault is likely to hurt the result.")


def test_losses_of_one_step_are_named_in_the_fix():
    build = collapsed(0)
    own = [["t.py", 3, "real.backward()"], ["t.py", 5, "fake.backward()"]]
    build.fact("places", **{"backward 0": own, "backward 1": [["t.py", 8, "loss_g.backward()"]]})
    remedy = diagnose(build.build()).hypotheses[0].remedy
    assert "before real.backward(), and not between real and fake" in remedy.text
    assert remedy.code.splitlines()[1:3] == ["real.backward()", "fake.backward()"]


@pytest.mark.parametrize(("after", "credible"), [(0, True), (1, True), (2, False), (20, False)])
def test_a_cause_dated_after_its_effect_is_not_credible(after, credible):
    build = Build(steps=80).loss(np.concatenate([np.linspace(2.3, 0.5, 40), np.full(40, 9.0)]))
    case = Case(build.build())
    assert case.trouble.broke
    item = Evidence("an odd batch", True, 8.0)
    finding = Finding("an odd batch", (item,), Remedy("repair it"), step=case.onset + after)
    (one,) = weigh(case, [(cause("bad_batch"), finding)])
    assert (one.confidence > 0.5) is credible
    assert any(e.statement == f"the trouble began before, at step {case.onset}" for e in one.discounts) is not credible
