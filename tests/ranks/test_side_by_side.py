"""The records of several ranks, made by hand: what is said of them together, and what is not."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from tests.explain.run_builder import Build, falling
from tests.ranks.programs import FAULTS

from neuraldbg.explain import CAUSES
from neuraldbg.explain.evidence.ranks import Ranks, rank_words
from neuraldbg.explain.job import diagnose_job
from neuraldbg.nouns import Outcome, RunRecord

NAMES = ["fc1.weight", "fc2.weight"]
AT = (0, 1, 2, 4, 8, 16, 32, 48, 64)
STEPS = 80
LOST = "RuntimeError: Connection closed by peer [127.0.0.1]:4"


def crc(*values: object) -> str:
    return f"{zlib.crc32(repr(values).encode()):08x}"


def prints(values: list[object], norms: list[float]) -> dict[str, object]:
    return {"crc": "".join(crc(value) for value in values), "norms": norms}


def one_rank(rank: int, at: tuple[int, ...] = AT, **told: object) -> Build:
    """A rank whose weights, gradients and inputs are given by functions of (step, rank, name); alike by default."""
    build = Build(steps=STEPS)
    build.loss(falling(STEPS))
    build.scalar("lr", told.pop("lr", 0.01))
    place = {"wrappers": {"Net": told.pop("wrapper", "DistributedDataParallel")}}
    place |= {key: told.pop(key) for key in ("random_layers", "parts", "buffers_broadcast") if key in told}
    build.fact("ranks", 0, **place)
    weights = told.pop("weights", lambda step, rank, name: step)
    gradients = told.pop("gradients", lambda step, rank, name: step)
    inputs = told.pop("inputs", lambda step, rank: (step, rank))
    generator = told.pop("generator", lambda step, rank: (step, rank))
    norm = told.pop("norm", lambda step, rank, name: 1.0)
    held = told.pop("held", "rr")
    assert not told, told
    for number, step in enumerate(at):
        build.fact(
            "replica", step, stream=0, names=NAMES if not number else [], held=held,
            weights=prints([(n, weights(step, rank, n)) for n in NAMES], [norm(step, rank, n) for n in NAMES]),
            gradients=prints([(n, "g", gradients(step, rank, n)) for n in NAMES], [1.0, 2.0]),
            inputs=crc("x", inputs(step, rank)), generator=crc("rng", generator(step, rank)),
            input_mean=0.01 * rank, input_std=1.0,
        )  # fmt: skip
    return build


def job(world: int = 2, **told: object) -> dict[int, RunRecord]:
    return {rank: of_job(one_rank(rank, **dict(told)).build(), rank, world) for rank in range(world)}


def of_job(run: RunRecord, rank: int, world: int) -> RunRecord:
    return replace(run, info=replace(run.info, job={"rank": rank, "world": world}))


def ended(runs: dict[int, RunRecord], outcomes: dict[int, Outcome]) -> dict[int, RunRecord]:
    return {rank: replace(run, info=replace(run.info, outcome=outcomes[rank])) for rank, run in runs.items()}


def causes(runs: dict[int, RunRecord]) -> list[str]:
    return [one.cause for one in diagnose_job(runs).hypotheses if one.confidence >= 0.5]


def test_each_cause_between_ranks_has_a_job_here():
    made = {one.cause for one in FAULTS} | {"hardware_corruption", "replica_same_rng"}
    assert {cause.id for cause in CAUSES if cause.category == "distributed"} <= made


def test_replicas_that_stay_alike_are_healthy_and_it_is_said():
    found = diagnose_job(job(4))
    assert found.verdict == "healthy"
    assert "Weights were equal on the 4 ranks in all 9 steps that were compared." in found.summary
    assert [one.rank for one in found.ranks] == [0, 1, 2, 3]


def test_one_of_three_that_changes_by_itself_is_the_device():
    odd = {"weights": lambda step, rank, name: (step, rank == 2 and step >= 32),
           "norm": lambda step, rank, name: 1.3 if rank == 2 and step >= 32 else 1.0}  # fmt: skip
    found = diagnose_job(job(3, **odd))
    first = found.hypotheses[0]
    assert {first.cause, *first.equivalent} >= {"hardware_corruption", "replica_divergence"} or first.ranks == (2,)
    named = {one.cause: one for one in found.hypotheses}
    assert named["hardware_corruption"].ranks == (2,)
    assert (named["hardware_corruption"].since, named["hardware_corruption"].step) == (16, 32)


def test_of_two_that_differ_nobody_knows_which_is_wrong():
    odd = {"weights": lambda step, rank, name: (step, rank == 1 and step >= 32),
           "norm": lambda step, rank, name: 1.3 if rank == 1 and step >= 32 else 1.0}  # fmt: skip
    assert causes(job(2, **odd)) == ["replica_divergence"]


SOUND = {
    "rounding": {"weights": lambda step, rank, name: (step, rank), "norm": lambda step, rank, name: 1.0 + 1e-7 * rank},
    "averaged now and then": {
        "weights": lambda step, rank, name: (step, rank if step in (2, 4) else 0),
        "norm": lambda step, rank, name: 1.0 + (0.1 * rank if step in (2, 4) else 0.0),
        "gradients": lambda step, rank, name: (step, rank),
        "wrapper": "",
    },
    "each its own model": {
        "weights": lambda step, rank, name: (step, rank),
        "norm": lambda step, rank, name: 1.0 + 0.2 * rank,
        "gradients": lambda step, rank, name: (step, rank),
        "wrapper": "",
    },
    "parts of one model": {
        "held": "pp",
        "parts": 2,
        "wrapper": "FSDPNet",
        "weights": lambda step, rank, name: (step, rank),
        "norm": lambda step, rank, name: 1.0 + 0.2 * rank,
    },
    "the same data for parts of one layer": {
        "held": "pp",
        "parts": 2,
        "wrapper": "",
        "inputs": lambda step, rank: step,
    },
    "one seed where nothing fails": {"generator": lambda step, rank: step, "random_layers": 3},
}


@pytest.mark.parametrize("name", SOUND)
def test_what_is_meant_is_no_alarm(name):
    found = diagnose_job(job(2, **SOUND[name]))
    assert found.verdict == "healthy", found.summary
    assert not found.hypotheses


def test_the_same_random_numbers_are_named_where_the_training_fails():
    stuck = {}
    for rank in range(2):
        build = one_rank(rank, generator=lambda step, rank: step, random_layers=3)
        build.loss(np.full(STEPS, 2.3) + 0.001 * np.sin(np.arange(STEPS)))
        stuck[rank] = of_job(build.build(), rank, 2)
    assert "replica_same_rng" in [one.cause for one in diagnose_job(stuck).hypotheses]


def test_a_rank_without_a_file_is_named():
    runs = job(4)
    del runs[2]
    found = diagnose_job(runs)
    assert [(one.what, one.reason) for one in found.unjudged if "rank" in one.what] == [
        ("rank 2", "there is no run file of it in this folder")
    ]


def test_errors_of_ranks_that_waited_are_no_causes():
    outcomes = {
        0: Outcome("raised", LOST),
        1: Outcome("raised", "ValueError: bad shard", "train.py:7", "raise ValueError(shard)"),
        2: Outcome("raised", "DistBackendError: NCCL watchdog: collective timed out"),
    }
    found = diagnose_job(ended(job(3), outcomes))
    assert found.verdict == "failing"
    assert found.summary.startswith("On rank 1 of 3, the script crashed")
    assert "bad shard" in found.summary


def test_a_rank_that_was_killed_is_named_by_its_record_without_an_end():
    found = diagnose_job(ended(job(3), {0: Outcome("raised", LOST), 1: Outcome("running"), 2: Outcome("raised", LOST)}))
    assert found.verdict == "failing"
    assert (found.hypotheses[0].cause, found.hypotheses[0].ranks) == ("rank_hangs", (1,))
    assert "rank 1 died without an exception after step 80" in found.summary


def test_an_error_of_waiting_of_which_nobody_knows_for_whom_is_told_as_it_is():
    done = Outcome("completed")
    found = diagnose_job(ended(job(2), {0: done, 1: Outcome("raised", "RuntimeError: DataLoader timed out after 5 s")}))
    assert found.verdict == "failing"
    assert "DataLoader timed out" in found.summary or found.hypotheses[0].cause == "rank_hangs"


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([1], "rank 1"),
        ([0, 2], "ranks 0 and 2"),
        (range(3), "ranks 0, 1 and 2"),
        (range(9), "ranks 0, 1, 2, 3 and 5 more"),
    ],
)
def test_ranks_in_words(ranks, words):
    assert rank_words(ranks) == words


def test_ranks_of_other_parameters_are_no_replicas():
    runs = job(2)
    facts = [
        replace(fact, value={**fact.value, "names": ["head.weight", "head.bias"] if fact.value.get("names") else []})
        if fact.key == "replica" else fact
        for fact in runs[1].facts
    ]  # fmt: skip
    assert Ranks({0: runs[0], 1: replace(runs[1], facts=tuple(facts))}).replicas == ()
