"""Every program of the corpus under the front door: the right cause for a fault, and silence for a healthy training."""

from __future__ import annotations

import pytest
from tests.faults.corpus import grade, load, watch

PROGRAMS = load()
CAUSES = {
    "bad_batch", "dead_relu", "double_softmax", "eval_mode_left_on", "exploding_depth", "fp16_overflow",
    "init_scale_wrong", "lr_too_high", "lr_too_low", "missing_zero_grad", "nonfinite_input", "optimizer_stale_params",
    "param_frozen", "param_not_in_optimizer", "param_unused", "saturating_activation", "target_broadcast",
    "unnormalised_inputs", "unnormalised_targets", "unstable_op", "vanishing_depth", "wrong_reduction",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_program_gets_its_diagnosis(name):
    diagnosis = watch(PROGRAMS[name])
    graded = grade(PROGRAMS[name], diagnosis)
    assert graded.right, f"wrong {graded.wrong}: {graded.said}: {diagnosis.summary}"
    unjudged = [u for u in diagnosis.unjudged if "could not be judged" in u.reason]
    assert not unjudged


def test_every_cause_has_a_program_that_it_breaks():
    assert {cause for one in PROGRAMS.values() for cause in one.cause} == CAUSES


def test_there_are_enough_healthy_trainings_to_cry_wolf_at():
    assert sum(not one.cause for one in PROGRAMS.values()) >= 50


@pytest.mark.parametrize("name", sorted(n for n, one in PROGRAMS.items() if one.cause))
def test_what_is_said_reads_well(name):
    for hypothesis in watch(PROGRAMS[name], seed=1).hypotheses:
        told = [hypothesis.sentence, hypothesis.remedy.text, *(e.statement for e in hypothesis.evidence)]
        assert not [t for t in told if t.endswith(".") != (t == hypothesis.remedy.text)], "only the remedy is sentences"
        assert "nan" not in " ".join(told).replace("NaN", "").split()
        assert "))" not in str(hypothesis).rpartition(" (confidence")[0]
        assert hypothesis.failure[0].islower() or hypothesis.failure.startswith("NaN")
        assert not hypothesis.failure.startswith(("the ", "a ", "an ")), "a noun phrase that can begin a sentence"
