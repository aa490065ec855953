"""The faults that only one of two runs has: those that its diagnosis counts, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import torch
from tests.compare.paired_trainings import changed

from neuraldbg.compare import compare
from neuraldbg.explain import diagnose
from neuraldbg.nouns import Diagnosis, Event, Hypothesis

DEAD = Event("dead_units", "activation_regime", 20, 39, "fc2")
CAUSE = Hypothesis("dead_relu", "architecture", 0.9, "x", explains=("dead_units",))
WELL = Diagnosis("healthy", "well")


def kill(units):
    """Return a change of a model: units of a rectified layer and of a linear one that are always negative."""

    def ready(model):
        with torch.no_grad():
            model.fc2.bias[:units] = -30.0
            model.head.bias[0] = -30.0

    return ready


ALIVE, KILLED = changed(steps=40), changed(steps=40, ready=kill(10))


def listed(judged, runs=(ALIVE, KILLED)):
    found = compare(*runs, (WELL, judged)).health
    return {(h.what, h.layer) for h in found if h.what not in ("verdict", "cause")}


def test_dead_units_are_listed_with_their_shares_where_the_diagnosis_counts_them():
    run = replace(KILLED, events=(DEAD,))
    judged = Diagnosis("suspect", "x", events=(DEAD,), hypotheses=(CAUSE,))
    found = compare(ALIVE, run, (WELL, judged)).health
    (dead,) = [h for h in found if h.what == "dead units"]
    assert (dead.layer, dead.one, dead.other) == ("fc2", "0% of 16", "62% of 16")
    assert ("event", "fc2") in listed(judged, (ALIVE, run))


def test_outputs_that_nothing_rectifies_have_no_dead_units():
    events = (DEAD, replace(DEAD, layer="head"))
    judged = Diagnosis("suspect", "x", events=events, hypotheses=(CAUSE,))
    assert ("dead units", "head") not in listed(judged, (ALIVE, replace(KILLED, events=events)))


def test_an_event_that_no_cause_explains_is_no_problem():
    run = replace(KILLED, events=(DEAD,))
    assert listed(Diagnosis("healthy", "x", events=(DEAD,)), (ALIVE, run)) == set()
    other = replace(CAUSE, cause="double_softmax", explains=("loss_plateau",))
    assert listed(Diagnosis("suspect", "x", events=(DEAD,), hypotheses=(other,)), (ALIVE, run)) == set()
    unsure = replace(DEAD, confidence=0.3)
    judged = Diagnosis("suspect", "x", events=(unsure,), hypotheses=(CAUSE,))
    assert listed(judged, (ALIVE, replace(KILLED, events=(unsure,)))) == set()


def test_an_unlikely_cause_is_not_listed():
    for confidence, causes in ((0.9, 1), (0.3, 0)):
        judged = Diagnosis("failing", "x", hypotheses=(replace(CAUSE, confidence=confidence),))
        found = compare(ALIVE, KILLED, (WELL, judged)).health
        assert len([h for h in found if h.what == "cause"]) == causes


def test_two_healthy_runs_have_no_problems():
    """Another seed and a lower learning rate: gradients differ twofold and that is no fault."""
    other = changed(steps=40, seed=5, lr=0.03)
    judged = diagnose(ALIVE), diagnose(other)
    assert [h for h in compare(ALIVE, other, judged).health if h.what in ("event", "dead units", "gradient norm")] == []
