"""What sets in late, told from what only looks like it: losses that double, labels that narrow, signs that turn,
weights that are written to, events in steps that were not read.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.explain.evidence.test_change_points import AT, STEPS, change, late, thin
from tests.explain.evidence.test_late_losses import sound
from tests.explain.run_builder import Build

from neuraldbg.explain import diagnose
from neuraldbg.explain.evidence.case import Case
from neuraldbg.explain.evidence.setbacks import slow_return
from neuraldbg.explain.verdict.dating import unseen
from neuraldbg.nouns import ChainNode

NUMBERS = {"kind": "mse", "classes": 0, "target_dtype": "float32", "target_shape": [32], "layer": "fc3", "sign": 1}
READ = (0, 1, 2, 256, 512, 900, 1024)


def regression(level: float, **more) -> Build:
    """A regression whose loss is at 0.1 up to step AT and at ``level`` from it on."""
    values = sound(STEPS, first=4.0, last=0.1, noise=0.05)
    values[AT:] = level * np.exp(0.05 * np.random.default_rng(0).standard_normal(STEPS - AT))
    target = {"mean": 0.0, "std": 2.0, "min": -6.0, "max": 6.0}  # a constant guess has a loss of 4
    return Build(steps=STEPS).loss(values).loss_term(**{**NUMBERS, "target": target, **more})


def test_a_loss_that_triples_at_once_and_stays_is_a_symptom_though_no_cause_is_known() -> None:
    found = diagnose(thin(regression(0.9)))
    assert found.verdict == "suspect"
    assert "then jumped to 0.88" in found.summary
    assert f"from step {AT} on and stayed there" in found.summary


@pytest.mark.parametrize("level", [0.12, 0.15, 0.22])
def test_a_loss_that_rises_a_little_or_doubles_without_another_sign_is_none(level: float) -> None:
    assert diagnose(thin(regression(level))).verdict == "healthy"


def test_a_sum_over_batches_of_three_times_the_size_triples_without_harm() -> None:
    def run(reduction: str) -> str:
        build = regression(0.9, reduction=reduction)
        return diagnose(thin(build.scalar("batch_size", 32).scalar("batch_size", 96, slice(AT, None)))).verdict

    assert run("sum") == "healthy"
    assert run("mean") == "suspect"


def written(back: int) -> Build:
    """Weights are written to at step 300 of 1,500, and the loss is back at its level ``back`` steps later."""
    values = sound(STEPS, last=0.1, noise=0.05)
    level = np.median(values[260:300])
    values[300 : 300 + back] = np.linspace(2.0, level, back)
    values[300 + back :] = 0.1 * np.exp(0.05 * np.random.default_rng(1).standard_normal(STEPS - 300 - back))
    build = Build(steps=STEPS).loss(values)
    return change(build, "weights", 0.0, 1.0, 299, 300, names=["fc3.weight"])


def test_a_loss_that_took_long_to_come_back_after_weights_were_written_to_is_told_from_one_that_took_a_moment() -> None:
    level, now, took = slow_return(Case(written(300).build()), 299, 300)
    assert now == pytest.approx(2.0, rel=0.05)
    assert level < 0.9
    assert 150 < took < 300
    assert slow_return(Case(written(40).build()), 299, 300) is None
    top = diagnose(written(300).build()).hypotheses[0]
    assert (top.cause, top.step, top.layer) == ("weights_overwritten", 300, "fc3")
    assert diagnose(written(40).build()).verdict == "healthy"


def test_a_program_that_resets_a_layer_again_and_again_does_so_on_purpose() -> None:
    build = written(300)
    for at in (700, 900, 1100):
        change(build, "weights", 0.0, 1.0, at - 1, at, names=["fc3.weight"])
    assert diagnose(build.build()).verdict == "healthy"


def targets(std: float, spread: float, *, shape: int = 32) -> list[str]:
    """The causes of a run whose targets, of a standard deviation of 2 up to step AT, have one of ``std`` inside a batch
    from it on, with means that lie ``spread`` apart.
    """
    build, plain = regression(0.1), {**NUMBERS, "target_shape": [shape], "direct": True}
    build.facts = [one for one in build.facts if one.key != "loss"]
    wide = {"mean": 0.0, "std": 2.0, "min": -6.0, "max": 6.0}
    for step in READ:
        build.fact("loss", step, stream=0, ops=[], terms=[build.term(**plain, target=wide)])
    for k, step in enumerate(range(AT + 1, AT + 81, 16)):
        mean = spread * (k / 4 - 0.5)
        narrow = {"mean": mean, "std": std, "min": mean - 2 * std, "max": mean + 2 * std}
        build.fact("loss", step, stream=0, ops=[], terms=[build.term(**plain, target=narrow)])
    build.fact(
        "targets", STEPS - 1, kind="mse", batches=40, samples=40 * shape, slot=0, stream=0, alone=True, single=True,
        min=-6.0, max=6.0, mean=0.0, std=2.0, batch_std=1.5,
    )  # fmt: skip
    return [one.cause for one in diagnose(build.build()).hypotheses]


def test_targets_that_come_sorted_or_as_one_number_are_named() -> None:
    assert targets(0.1, 8.0) == ["unshuffled_data"]
    assert targets(0.0, 0.0) == ["labels_degenerate"]


@pytest.mark.parametrize(
    ("std", "spread", "shape"),
    [(1.5, 1.0, 32), (0.4, 0.2, 32), (0.5, 40.0, 32), (0.0, 8.0, 1)],
    ids=["as before", "in smaller units", "returns that grow", "batches of one"],
)
def test_targets_that_are_others_and_not_sorted_are_left_alone(std: float, spread: float, shape: int) -> None:
    assert targets(std, spread, shape=shape) == []


def test_a_sign_that_was_turned_long_before_the_loss_broke_is_its_cause_and_one_that_does_no_harm_is_none() -> None:
    def run(values: np.ndarray, *, ruin: bool) -> Build:
        build = Build(steps=STEPS).loss(values).loss_term(sign=1)
        build = build.ruin(STEPS - 5) if ruin else build
        for step in (701, 717, 800):
            build.fact("loss", step, stream=0, ops=[], terms=[build.term(sign=-1)])
        return build

    values = sound(STEPS, last=0.1)
    values[700:] = -np.geomspace(0.1, 1e6, STEPS - 700)
    values[-5:] = np.nan
    top = diagnose(run(values, ruin=True).build()).hypotheses[0]
    assert (top.cause, top.step) == ("loss_sign_flip", 700)
    bounded = sound(STEPS, last=0.1)
    bounded[700:] = -0.1 * np.exp(0.1 * np.random.default_rng(0).standard_normal(STEPS - 700))
    assert all(one.cause != "loss_sign_flip" for one in diagnose(run(bounded, ruin=False).build()).hypotheses)


def test_an_event_in_steps_that_were_not_read_has_an_interval_and_one_of_the_loss_a_step() -> None:
    build = late().event("exploding_gradients", 1201, "fc2").event("loss_divergence", AT)
    case = Case(thin(build))
    events = {one.kind: one for one in case.run.events}
    assert unseen(case, events["exploding_gradients"]) == 1024
    assert unseen(case, events["loss_divergence"]) is None
    node = ChainNode("event:x", "event", "exploding gradients", "fc2", 1201, since=1024)
    assert node.when == "between steps 1024 and 1201"
    assert str(node) == "exploding gradients, between steps 1024 and 1201"
    assert ChainNode("event:x", "event", "exploding gradients", "fc2", 1201).when == "step 1201"
    assert any("between steps 1024 and 1201" in str(one) for one in diagnose(thin(build)).chain.nodes)
