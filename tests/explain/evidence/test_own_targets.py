"""Targets that a model makes for itself, beside targets that come in other units."""

from __future__ import annotations

import pytest
from tests.explain.run_builder import Build

from neuraldbg.explain.evidence.own_targets import growing


def readings(targets: list[float], predictions: list[float]) -> tuple[tuple[int, int], ...]:
    build = Build()
    build.facts = []
    for step, (target, given) in enumerate(zip(targets, predictions, strict=True)):
        term = build.term(kind="smooth_l1", target={"mean": target, "std": 0.0}, input={"mean": given, "std": 0.0})
        build.fact("loss", 16 * step, stream=0, ops=[], terms=[term])
    return growing(build.build().facts)


SLOW = [1.0 * 1.2**n for n in range(20)]


@pytest.mark.parametrize(
    ("name", "targets", "predictions", "grow"),
    [
        ("an agent", SLOW, [0.9 * x for x in SLOW], True),
        ("an agent that begins far off", SLOW, [0.1] * 6 + SLOW[6:], True),
        ("a leap", [1.0] * 10 + [50.0] * 10, [1.0] * 12 + [50.0] * 8, False),
        ("targets that the model does not follow", SLOW, [1.0] * 20, False),
        ("targets that stay", [1.0] * 20, [1.0] * 20, False),
        ("few readings", SLOW[::4], SLOW[::4], False),
    ],
)
def test_targets_that_grow_with_the_predictions(name, targets, predictions, grow):
    found = readings(targets, predictions)
    assert bool(found) == grow, name
    assert all(since < until for since, until in found)
