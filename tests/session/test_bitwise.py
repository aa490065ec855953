"""Training under the tool is bitwise the training without it: losses, weights, gradients, random numbers."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from tests.session.seeded_trainings import STEPS, TRAININGS, same

from neuraldbg import NeuralDbg

WATCHERS = {
    "model": NeuralDbg,
    "discover": lambda model: NeuralDbg(discover=True),
    "snapshots": lambda model: NeuralDbg(model, snapshots=["*"]),
    "sampled": lambda model: NeuralDbg(model, settings={"capture": {"every": 3, "block_cap": 64}}),
}


@pytest.fixture(params=TRAININGS)
def program(request: pytest.FixtureRequest) -> Any:
    return TRAININGS[request.param]


def test_training_is_bitwise_the_same(program: Any) -> None:
    bare = program(lambda model: contextlib.nullcontext())
    assert torch.equal(bare["rng"], program(lambda model: contextlib.nullcontext())["rng"])
    for name, watch in WATCHERS.items():
        same(bare, program(watch), name)


def test_each_training_is_seen_step_by_step(program: Any) -> None:
    seen: list[NeuralDbg] = []

    def watch(model: Any) -> NeuralDbg:
        seen.append(NeuralDbg(discover=True))
        return seen[-1]

    result = program(watch)
    (dbg,) = seen
    skipped = 1 if program.__name__ == "grad_scaler" else 0
    assert dbg.steps == STEPS - skipped
    run = dbg.record()
    losses = run.scalar("loss").values
    if program.__name__ in ("mlp", "convnet", "transformer", "lstm", "lbfgs", "bf16_autocast"):
        assert losses.tolist() == pytest.approx(result["losses"].float().tolist(), rel=1e-6)
    if program.__name__ == "accumulation":
        assert losses.tolist() == pytest.approx(result["losses"].view(STEPS, 3).mean(1).tolist(), rel=1e-6)
        assert run.scalar("backwards").values.tolist() == [3.0] * STEPS
    if program.__name__ == "evaluation_between":
        # Two evaluations after every second step; the one without gradients is told by torch itself.
        assert sum(run.scalar("evals").values) >= STEPS // 2 - 1
        assert set(run.scalar("eval_layers").values) == {0.0}
