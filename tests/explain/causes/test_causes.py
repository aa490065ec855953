"""Every cause is named where it is at work, and stays silent in a near twin of that run."""

from __future__ import annotations

import pytest
from tests.explain.run_builder import Build
from tests.explain.stories import STORIES

from neuraldbg.errors import UnknownCause
from neuraldbg.explain import CAUSES, Tier, cause, diagnose

IDS = [member.id for member in CAUSES]
OF_JOBS = {member.id for member in CAUSES if member.category == "distributed"}
"""Causes between ranks: one run has none of them. tests/ranks has their jobs."""


def test_every_cause_has_a_story_and_they_are_sorted():
    assert set(IDS) == set(STORIES) | OF_JOBS
    keys = [(member.category, member.id) for member in CAUSES]
    assert keys == sorted(keys)


@pytest.mark.parametrize("name", sorted(STORIES))
def test_fires_first_with_layer_and_step(name):
    story = STORIES[name]
    found = diagnose(story.fires().build())
    assert [h.cause for h in found.hypotheses[:1]] == [name], [(h.cause, h.confidence) for h in found.hypotheses]
    top = found.hypotheses[0]
    assert top.confidence >= story.least
    assert (top.layer, top.step) == (story.layer, story.step)
    assert found.verdict == story.verdict, found.summary
    assert top.rank == 1
    assert any(e.supports and e.value is not None for e in top.evidence)
    assert top.remedy.text
    assert top.sentence in found.summary


@pytest.mark.parametrize("name", sorted(STORIES))
def test_stays_silent_in_the_twin(name):
    story = STORIES[name]
    found = diagnose(story.silent().build())
    assert found.hypotheses == (), [(h.cause, h.confidence, h.evidence) for h in found.hypotheses]
    assert found.verdict == story.silent_verdict, found.summary


@pytest.mark.parametrize("make", ["fires", "silent"])
@pytest.mark.parametrize("name", sorted(STORIES))
def test_no_judge_fails_and_the_json_is_strict(name, make):
    found = diagnose(getattr(STORIES[name], make)().build())
    assert [u for u in found.unjudged if "could not be judged" in u.reason] == []
    assert '"schema": "neuraldbg.diagnosis/1"' in found.to_json()


@pytest.mark.parametrize("name", sorted(STORIES))
def test_remedy_code_is_python(name):
    top = diagnose(STORIES[name].fires().build()).hypotheses[0]
    compile(top.remedy.code, "remedy", "exec")


@pytest.mark.parametrize("member", CAUSES, ids=IDS)
def test_page_has_its_four_parts(member):
    for part in ("What it is", "Symptoms", "Evidence", "What to do"):
        assert f"\n{part}\n" in member.page
    assert member.category in member.judge.__module__
    assert member.judge.__module__.endswith(member.id)


def test_unknown_cause_lists_the_nearest():
    assert cause("lr-too-high").id == "lr_too_high"
    with pytest.raises(UnknownCause, match="missing_zero_grad"):
        cause("zero_grad")


def test_tiers_are_as_the_explaining_away_assumes():
    by_id = {member.id: member.tier for member in CAUSES}
    assert by_id["lr_too_high"] is by_id["lr_too_low"] is Tier.PALLIATIVE
    assert all(member.tier is Tier.CERTAIN for member in CAUSES if member.category == "loop")


def test_remedies_fit_the_model():
    top = diagnose(STORIES["lr_too_high"].fires().build()).hypotheses[0]
    assert "torch.optim.SGD" in top.remedy.code
    assert "lr=0.04" in top.remedy.code  # 100 * 0.01 / 25: the step that makes updates a hundredth of the weights
    top = diagnose(STORIES["init_scale_wrong"].fires().build()).hypotheses[0]
    assert "get_submodule('fc1')" in top.remedy.code


def test_a_healthy_build_is_healthy():
    assert diagnose(Build().build()).verdict == "healthy"
