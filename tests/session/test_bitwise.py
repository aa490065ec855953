"""Training under the tool is bitwise the training without it: losses, weights, gradients, random numbers."""

from __future__ import annotations

import contextlib
import tempfile
from typing import Any

import pytest
import torch
from tests.session.seeded_trainings import STEPS, TRAININGS, same

from neuraldbg import Alerts, HookAction, HookBuilder, NeuralDbg


def with_hooks(model: Any) -> NeuralDbg:
    """Return a session with a hook at every moment of every layer and step, which reads all tensors."""
    dbg = NeuralDbg(model)
    for moment in ("before_layer", "after_layer", "after_backward"):
        dbg.register_hook(moment, lambda _, value: [one.double().sum() for one in leaves(value)], layers="*")
    for moment in ("after_step", "on_loss"):
        dbg.register_hook(moment, lambda step, loss: (step, loss))
    dbg.register_hook("before_step", lambda step: step)
    dbg.register_hook("on_event", str)
    for action in (HookAction.INSPECT_TENSOR, HookAction.RECORD_ACTIVATIONS, HookAction.TRACK_GRADIENTS):
        dbg.register_hook(HookBuilder().action(action).layer_patterns(["*"]).build())
    return dbg


def with_alerts(model: Any) -> NeuralDbg:
    """Return a session with alerts of every sort, told at every step and by every way that needs no network."""
    folder = tempfile.mkdtemp()
    asked = Alerts(["any", "nan", "lr_too_high", "loss > 0 or step >= 0"], file=f"{folder}/a", command="true", every=0)
    dbg = NeuralDbg(model, alerts=asked)
    dbg.alert_on("layer.rms > 0", str)
    return dbg


def leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [x for one in inner for x in leaves(one)]


WATCHERS = {
    "model": NeuralDbg,
    "discover": lambda model: NeuralDbg(discover=True),
    "snapshots": lambda model: NeuralDbg(model, snapshots=["*"]),
    "hooks": with_hooks,
    "alerts": with_alerts,
    "profile": lambda model: NeuralDbg(model, profile=True),
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
    if program.__name__ == "accumulation":  # each loss is divided by 3: their sum is the mean before that
        assert losses.tolist() == pytest.approx(result["losses"].view(STEPS, 3).sum(1).tolist(), rel=1e-6)
        assert run.scalar("backwards").values.tolist() == [3.0] * STEPS
    if program.__name__ == "evaluation_between":
        # Two evaluations after every second step; the one without gradients is told by torch itself.
        assert sum(run.scalar("evals").values) >= STEPS // 2 - 1
        assert set(run.scalar("eval_layers").values) == {0.0}
