"""The programs that go wrong late are what they say: truths, onsets, the draw, and that each change does something."""

import math

import pytest
import torch
from tests.faults.late.late_corpus import FIRST, drawn, fitting, late, named
from tests.faults.late.late_harm import Harm
from tests.faults.late.late_kinds import KINDS, keep_early
from tests.faults.late.late_pairs import DROPPED, PAIRS
from tests.faults.late.late_tasks import TASKS

from neuraldbg.explain import CAUSES

FAULTS = [kind for kind in KINDS.values() if not kind.harmless]
HARMLESS = [kind for kind in KINDS.values() if kind.harmless]


def test_there_are_enough_of_each():
    assert len(FAULTS) >= 25
    assert len(HARMLESS) >= 15
    assert len(TASKS) >= 6
    assert sum(task.held_out for task in TASKS.values()) == 3


def test_truths_are_ids_of_the_taxonomy():
    ids = {cause.id for cause in CAUSES}
    for one in fitting():
        truth = one.kind.truth(one.task)
        assert set(truth) <= ids, one.name
        assert not (one.kind.harmless and truth), one.name
        assert one.golden.healthy is one.kind.harmless
        assert one.golden.unclear is (not one.kind.harmless and not truth)


def test_kinds_are_drawn_on_tasks_that_they_fit_and_were_measured_on():
    for table in (PAIRS, DROPPED):
        for kind, tasks in table.items():
            assert all(KINDS[kind].fits(TASKS[task]) for task in tasks), kind
    assert not [kind for kind, tasks in PAIRS.items() if set(tasks) & set(DROPPED.get(kind, ()))]
    programs = drawn()
    assert {one.kind.name for one in programs} == set(PAIRS)
    for kind, tasks in PAIRS.items():
        mine = {one.task.held_out for one in programs if one.kind.name == kind}
        assert mine == {TASKS[task].held_out for task in tasks}
    assert [one.name for one in drawn()] == [one.name for one in programs]
    assert all(named(one.name) == one for one in programs)


def test_onsets_come_from_the_seed_and_leave_time_before_and_after():
    for seed in range(3):
        for one in fitting(seed):
            assert FIRST <= one.onset <= one.task.longest <= 20_000
            assert one.steps - one.onset >= max(300, one.onset // 3)
    onsets = [late("nothing", "customers", seed).onset for seed in range(200)]
    middle = sorted(onsets)[100]
    assert 0.7 < math.log(middle / FIRST) / math.log(math.sqrt(TASKS["customers"].longest / FIRST)) < 1.3


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def ended(task, steps, at=-1, kind=None):
    """Train for a few steps and return all weights and the quality."""
    training = TASKS[task](0)
    if kind is not None and kind.before is not None:
        kind.before(training)
    training.train(steps, at, kind.change if kind is not None else None)
    weights = torch.cat([p.detach().flatten() for p in training.model.parameters()])
    return weights, training.quality()


@pytest.mark.parametrize("task", TASKS)
def test_a_training_learns_and_its_seed_decides_everything(task):
    before = TASKS[task](0).quality()
    first, after = ended(task, 40)
    second, _ = ended(task, 40)
    assert after < before
    assert torch.equal(first, second)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_change_works_from_its_step_on(kind):
    task = next(name for name in TASKS if kind.fits(TASKS[name]))
    at = 53 if kind.before is keep_early else 4
    _, quality = ended(task, at + 4, at, kind)
    assert not kind.harmless or math.isfinite(quality)


@pytest.mark.parametrize(
    ("losses", "harmed", "calm"),
    [
        ((1.0, 1.5, 0.9), True, False),  # worse than before
        ((1.0, 1.0, 0.85), True, True),  # stalls where the twin goes on
        ((1.0, 1.0, 0.99), False, True),  # nobody learnt anything
        ((1.0, 0.6, 0.5), False, True),
        ((1.0, 0.8, 0.5), False, False),  # recovers, far behind the twin,
        ((1.0, math.inf, 0.5), True, False),
    ],
)
def test_harm_is_a_worse_loss_or_a_stall(losses, harmed, calm):
    harm = Harm("name", "kind", "task", 300, *losses)
    assert (harm.harmed, harm.calm) == (harmed, calm)
