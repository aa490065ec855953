"""Every program of the corpus under the front door: the right cause for a fault, and silence for a healthy training.

The fast part holds each cause once, every task and a share of the other healthy trainings; ``-m slow`` holds a share of
the rest. ``make accuracy`` runs all of them, with three seeds, and says how often the diagnosis is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from tests.faults.corpus import grade, load, record
from tests.faults.golden import SURE

from neuraldbg.explain import CAUSES

if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAMS = load()
EVERY = 4
"""Of the healthy trainings that are no tasks, each fourth is in the fast part."""
SLOW_EVERY = 5
"""Of the programs that are not in the fast part, each fifth is in the slow one: the whole suite must not take long."""
MISSED: dict[str, str] = {
    "accumulate_class_by_class": "its loss grows to NaN, and the learning rate that does so is named first",
    "autoencoder_half_sum_of_small_errors": "the loss falls by a sixth all the same",
    "digits_mlp_momentum_0999": "its loss falls slowly, without the swings of too much momentum",
    "digits_mlp_steep_sigmoid": "an activation of a class of its own is not known as one",
    "finetune_frozen_part_in_train_mode": "the drift of the statistics is small",
    "gpt_scores_not_scaled": "the model learns all the same",
    "gpt_without_residuals": "the model learns all the same",
    "graph_oversmoothed": "weight_decay_too_high instead: without gradients the decay is all that is left",
    "graph_random_labels": "inputs and labels do not pair row by row",
    "graph_sum_over_many_rounds": "called healthy: its loss starts at 26,000 and falls to 0.93",
    "graph_weights_overwritten_by_old_ones": "called healthy though its loss does not fall",
    "house_steep_tanh": "the model learns all the same",
    "policy_forgets_the_minus": "the same as minimising a cost",
    "rows_l1_on_class_ids": "the graph of an L1 loss does not keep its targets",
    "tagger_one_unit": "its loss still falls",
    "teacher_labels_drawn_anew": "inputs and labels do not pair row by row",
}
"""Programs that are not diagnosed rightly yet, and why."""
STORY_ONLY = frozenset({"adam_second_moment_stale", "memory_leak"})
"""Causes that no small training here shows: they are tested by hand-made records only (tests/explain). Leaks are
counted with ``profile=True`` and tested in tests/capture/profiling."""


def share(names: Iterable[str], every: int) -> list[str]:
    """Return about one of ``every`` names. A name is drawn by itself: a new program takes no other one in or out."""
    return [name for name in names if crc32(name.encode()) % every == 0]


def representative() -> frozenset[str]:
    """Name one program for each cause, every task, and some of the other healthy trainings."""
    chosen: dict[str, str] = {}
    for name, one in PROGRAMS.items():
        for cause in one.golden.cause[:1]:
            chosen.setdefault(cause, name)
    others = (n for n, one in PROGRAMS.items() if not one.golden.cause and one.family != "tasks")
    tasks = {n for n, one in PROGRAMS.items() if one.family == "tasks"}
    return frozenset({*chosen.values(), *share(others, EVERY), *tasks})


FAST = representative()


def marks(name):
    speed = [] if name in FAST else [pytest.mark.slow]
    return [*speed, pytest.mark.xfail(reason=MISSED[name], strict=False)] if name in MISSED else speed


CHOSEN = sorted({*FAST, *share(PROGRAMS, SLOW_EVERY)})


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in CHOSEN])
def test_a_program_gets_its_diagnosis(name):
    one = PROGRAMS[name]
    run, diagnosis = record(one)
    if one.text:
        assert (run.info.outcome.kind == "raised") == one.raises, run.info.outcome.message
    graded = grade(one, diagnosis)
    assert graded.right, f"wrong {graded.wrong}: {graded.said}: {diagnosis.summary}"
    assert not [u for u in diagnosis.unjudged if "could not be judged" in u.reason]
    for hypothesis in diagnosis.hypotheses:
        assert_reads_well(hypothesis)


def assert_reads_well(hypothesis):
    told = [hypothesis.sentence, hypothesis.remedy.text, *(e.statement for e in hypothesis.evidence)]
    assert not [t for t in told if t.endswith(".") != (t == hypothesis.remedy.text)], "only the remedy is sentences"
    assert "nan" not in " ".join(told).replace("NaN", "").split()
    assert "))" not in str(hypothesis).rpartition(" (confidence")[0]
    assert hypothesis.failure[0].islower() or hypothesis.failure.startswith("NaN")
    assert not hypothesis.failure.startswith(("the ", "a ", "an ")), "a noun phrase that can begin a sentence"


def test_every_cause_of_the_package_has_a_program_that_it_breaks():
    broken = {cause for one in PROGRAMS.values() for cause in one.golden.every}
    assert {cause.id for cause in CAUSES if cause.category != "distributed"} - broken == STORY_ONLY  # see tests/ranks


def test_most_causes_are_made_on_two_tasks_at_least():
    tasks: dict[str, set[str]] = {}
    for one in PROGRAMS.values():
        for cause in one.golden.every:
            tasks.setdefault(cause, set()).add(one.task)
    assert sum(len(found) >= 2 for found in tasks.values()) >= 0.8 * len(tasks)


def test_there_are_enough_programs_of_each_kind():
    healthy = sum(one.golden.healthy for one in PROGRAMS.values())
    unclear = sum(one.golden.unclear for one in PROGRAMS.values())
    both = sum(bool(one.golden.also) for one in PROGRAMS.values())
    assert (healthy >= 120, unclear >= 10, both >= 5) == (True, True, True)
    assert sum(bool(one.golden.cause) and bool(one.text) for one in PROGRAMS.values()) >= 170


def test_a_golden_that_is_sure_of_itself_says_what_it_tolerates():
    for one in PROGRAMS.values():
        assert not set(one.golden.tolerated) & set(one.golden.every), one.name
        assert one.golden.healthy or one.golden.cause or one.golden.unclear, one.name
    assert SURE == 0.5
