"""The course of a learning rate in words, of what torch's own schedulers do."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tests.explain.run_builder import Build
from torch.optim import lr_scheduler as lrs

from neuraldbg.explain import Case, diagnose
from neuraldbg.explain.evidence.schedule_shapes import courses, shape
from neuraldbg.nouns import Fact, Series

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 1000


def rates(make: Callable[[torch.optim.Optimizer], Any], every: int = 1) -> Series:
    """The learning rates of 1,000 steps, the scheduler stepped after each ``every`` of them."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler, values = make(optimizer), []
    for step in range(1, STEPS + 1):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step % every == 0:
            scheduler.step()
    return Series(np.arange(STEPS), np.asarray(values), np.ones(STEPS, np.int64))


def warm_up(optimizer: torch.optim.Optimizer) -> lrs.SequentialLR:
    return lrs.SequentialLR(
        optimizer, [lrs.LinearLR(optimizer, 0.01, 1.0, 100), lrs.CosineAnnealingLR(optimizer, 900)], [100]
    )


@pytest.mark.parametrize(
    ("make", "every", "said"),
    [
        (lambda o: lrs.StepLR(o, 300), 1, "begins at 0.1, falls to 0.01 at step 300, to 0.001 at step 600, to 0.0001"),
        (lambda o: lrs.StepLR(o, 30), 10, "begins at 0.1, falls to 0.01 at step 300, to 0.001 at step 600, to 0.0001"),
        (lambda o: lrs.MultiStepLR(o, [400, 800]), 1, "begins at 0.1, falls to 0.01 at step 400, to 0.001 at step 800"),
        (lambda o: lrs.ExponentialLR(o, 0.99), 1, "begins at 0.1, falls exponentially to 4.4e-6 by step 999"),
        (lambda o: lrs.ExponentialLR(o, 0.9), 50, "begins at 0.1, falls exponentially to 0.0135 by step 950"),
        (lambda o: lrs.CosineAnnealingLR(o, 1000), 1, "begins at 0.1, falls along a half cosine to 2.5e-7 by step 999"),
        (lambda o: lrs.CosineAnnealingLR(o, 20), 50, "begins at 0.1, falls along a cosine to 0.000616 by step 950"),
        (lambda o: lrs.LinearLR(o, 0.1, 1, 100), 1, "begins at 0.01, rises linearly to 0.1 by step 100"),
        (
            lambda o: lrs.CosineAnnealingLR(o, 50),
            1,
            "goes up and down along a half cosine between 0 and 0.1, and turns 19 times, every 50 steps",
        ),
        (
            lambda o: lrs.CyclicLR(o, 0.01, 0.1, step_size_up=50),
            1,
            "goes up and down linearly between 0.01 and 0.1, and turns 19 times, every 50 steps",
        ),
        (lambda o: lrs.CosineAnnealingWarmRestarts(o, 50), 1, "and starts again 19 times, every 50 steps"),
        (lambda o: lrs.CosineAnnealingWarmRestarts(o, 50, 2), 1, "starts again 4 times, at growing distances"),
        (
            warm_up,
            1,
            "begins at 0.001, rises linearly to 0.1 by step 100, then falls along a half cosine to 3e-7 by step 999",
        ),
        (lambda o: lrs.ConstantLR(o, 1.0), 1, "is 0.1 throughout"),
    ],
)
def test_the_course_of_torchs_schedulers(make: Callable[..., Any], every: int, said: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert said in shape(rates(make, every))


def test_a_level_that_is_kept_between_two_pieces() -> None:
    values = np.concatenate([np.linspace(0.01, 0.1, 100), np.full(500, 0.1), np.linspace(0.1, 0.0, 401)[1:]])
    said = shape(Series(np.arange(STEPS), values, np.ones(STEPS, np.int64)))
    assert (
        "rises linearly to 0.1 by step 99, then stays at 0.1 up to step 599, then falls linearly to 0 by step 999"
        in said
    )


def test_no_value_has_no_course() -> None:
    assert shape(Series(np.arange(3), np.full(3, np.nan), np.ones(3, np.int64))) == ""


def group(lr: float, decay: float) -> dict[str, Any]:
    return {"params": 2, "lr": lr, "weight_decay": decay}


def test_other_groups_and_other_settings_are_told_where_they_differ_or_change() -> None:
    build = Build(steps=60)
    build.facts = [fact for fact in build.facts if fact.key != "optimizer"]
    for step, decay in ((0, 0.0), (20, 0.0), (40, 0.1)):
        groups = [group(0.1, 0.0), group(0.2, decay)]
        data = {"stream": 0, "type": "SGD", "foreign_no_grad": 0, "owned": 4, "groups": groups}
        build.facts.append(Fact(step, "optimizer", data))
    said = courses(Case(build.build()))
    assert said == [
        "the learning rate of SGD is 0.1 throughout",
        "the learning rate of SGD in group 1 is 2 times that of group 0",
        "the weight decay of SGD in group 1 begins at 0, rises to 0.1 at step 40, in the steps whose facts were read",
    ]


def schedule(number: int, made: int, steps: int, end: float = 200.0) -> dict[str, Any]:
    return {"id": number, "type": "CosineAnnealingLR", "stream": 0, "made": made, "steps": steps, "pass_steps": 20,
            "params": {"T_max": end}, "position": float(steps), "base_lr": 0.1, "optimizer_steps": 60}  # fmt: skip


@pytest.mark.parametrize(
    ("of", "named"),
    [
        ([schedule(i, 20 * i, 20) for i in range(3)], True),
        ([schedule(i, 20 * i, 20, end=20.0) for i in range(3)], False),  # each runs to its end: stages
        ([schedule(i, made, 15) for i, made in enumerate((0, 5, 45))], False),  # at no even distances
        ([schedule(0, 0, 60)], False),
        ([schedule(i, 20 * i, 20) | {"optimizer": i} for i in range(3)], False),  # each task has its own
        ([schedule(i, 20 * i, 20) | {"pass_steps": 4} for i in range(3)], False),  # each stage of five passes
    ],
)
def test_a_scheduler_that_is_made_anew_in_each_epoch(of: list[dict[str, Any]], named: bool) -> None:
    build = Build(steps=60)
    for data in of:
        build.facts.append(Fact(59, "schedule", data))
    found = [one for one in diagnose(build.build()).hypotheses if "made anew every 20 steps" in one.sentence]
    assert [one.cause for one in found] == ["schedule_error"] * named
    assert all(one.step == 20 for one in found)


@pytest.mark.parametrize(("factor", "named"), [(0.003, True), (0.5, False)])
def test_a_factor_that_is_a_learning_rate(factor: float, named: bool) -> None:
    build = Build(steps=60).scalar("lr", 0.003 * factor)
    build.fact(
        "schedule", 59, id=0, type="LambdaLR", stream=0, made=0, steps=60, pass_steps=20, base_lr=0.003,
        optimizer_steps=60, position=60.0,
    )  # fmt: skip
    found = [one for one in diagnose(build.build()).hypotheses if "whose factor is at most 0.003" in one.sentence]
    assert bool(found) is named
    assert all(one.cause == "schedule_error" and one.confidence > 0.8 for one in found)


def test_the_mean_of_a_bin_with_a_step_in_it_is_no_level() -> None:
    values = np.asarray([0.01, 0.01, 0.0064, 0.001, 0.001])
    said = shape(Series(np.arange(0, 80, 16), values, np.full(5, 16)))
    assert said == "begins at 0.01, falls to 0.001 at step 48"
