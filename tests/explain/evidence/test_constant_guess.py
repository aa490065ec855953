"""A loss beside that of a constant guess: what little there is to learn counts, where it is known to be little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.explain.run_builder import Build
from tests.explain.stories_targets import PLAIN

from neuraldbg.explain import diagnose
from neuraldbg.explain.evidence.case import Case
from neuraldbg.explain.evidence.constant_guess import at_guess, guessing_loss

STEPS = 400


def regression(share: float, stds: tuple[float, ...] = (1.0,), fit: dict[str, Any] | None = None, **told: Any) -> Build:
    """Return a training that ends at a share of the targets' variance of 1; ``stds`` are those of single batches."""
    rng, t = np.random.default_rng(0), np.arange(STEPS)
    build = Build(steps=STEPS).loss(share + 0.25 * np.exp(-t / 20) + rng.normal(0, 0.05, STEPS))
    build.facts = [fact for fact in build.facts if fact.key != "loss"]
    for k, std in enumerate(stds):
        about = {"min": -3.0, "max": 3.0, "mean": 0.0, "std": std}
        term = build.term(kind="mse", classes=0, target_dtype="float32", target=about, **PLAIN)
        build.fact("loss", 2**k, stream=0, ops=[], terms=[term])
    known = {"min": -3.0, "max": 3.0, "mean": 0.0, "std": 1.0, "batch_std": 1.0, **told}
    if fit is not None:
        known["fit"] = {"samples": 512, "null": -0.02, "null_sd": 0.01, "spread": 0.5, "features": 12, **fit}
    return build.fact("targets", STEPS - 1, slot=0, stream=0, kind="mse", alone=True, single=True, batches=150,
                      samples=9600, **known)  # fmt: skip


def test_the_guess_is_that_of_all_batches_that_were_read() -> None:
    few = (1.1, 0.95, 1.08)
    assert guessing_loss(Case(regression(0.9, few).build())) == 1.0
    assert guessing_loss(Case(regression(0.9, few, std=40.0).build())) == pytest.approx(1.08**2), (
        "other units for a while"
    )


WEAK = {"score": 0.067, "z": 8.8}


@pytest.mark.parametrize(
    ("share", "fit", "stays"),
    [
        (0.965, WEAK, False),  # four fifths of what a regression finds
        (0.965, None, True),
        (0.965, {"score": 0.02, "z": 2.0}, True),  # chance
        (0.965, {"score": 0.6, "z": 60.0}, True),  # there was much to learn
        (1.0, WEAK, True),
        (0.98, WEAK, True),
        (0.7, None, False),
    ],
)
def test_what_little_the_inputs_tell_counts_as_learnt(share: float, fit: dict[str, Any] | None, stays: bool) -> None:
    case = Case(regression(share, fit=fit).build())
    assert at_guess(case) == stays
    assert (diagnose(case.run).verdict == "healthy") == (not stays)
