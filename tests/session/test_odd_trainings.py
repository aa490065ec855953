"""The less trodden parts of torch: bitwise the same, every step seen, no internal error."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from tests.session.odd_trainings import HOOKED, ODDITIES
from tests.session.seeded_trainings import same
from tests.session.test_bitwise import with_hooks

from neuraldbg import NeuralDbg


def values(program: Any, watch: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    model, losses, _ = program(watch)
    return {"losses": losses, "state": dict(model.state_dict()), "rng": torch.random.get_rng_state()}


@pytest.mark.parametrize("name", ODDITIES)
@pytest.mark.parametrize("discover", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_bitwise_and_every_step(name: str, discover: bool) -> None:
    program = ODDITIES[name]
    sessions: list[NeuralDbg] = []

    def watch(model: Any) -> NeuralDbg:
        sessions.append(NeuralDbg(None if discover else model, discover=discover))
        return sessions[-1]

    bare = values(program, lambda model: contextlib.nullcontext())
    same(bare, values(program, watch), name)
    (dbg,) = sessions
    run = dbg.record()
    assert run.info.coverage["errors"] == 0
    expected = len(bare["losses"])
    assert run.steps == expected, (run.steps, expected)
    assert len(run.scalar("loss")) == expected
    assert dbg.diagnose().verdict in ("healthy", "inconclusive", "suspect"), dbg.diagnose().summary


@pytest.mark.parametrize("name", ["gradient_penalty", "grad_by_hand"])
def test_autograd_grad_is_no_backward(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves ``.grad`` alone, so it tells nothing of a missing zero_grad; alone in a step, it is the loss."""
    monkeypatch.setattr("tests.session.odd_trainings.N", 60)
    torch.manual_seed(0)
    with NeuralDbg(discover=True) as dbg:
        _, losses, _ = ODDITIES[name](lambda model: contextlib.nullcontext())
    run = dbg.record()
    assert run.scalar("loss").values.tolist() == pytest.approx([float(loss) for loss in losses], rel=1e-5)
    assert run.scalar("backwards").values.tolist() == [1.0] * 60
    assert "missing_zero_grad" not in [h.cause for h in dbg.diagnose().hypotheses]


@pytest.mark.parametrize("name", HOOKED)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.usefixtures("fresh_compiler")
def test_bitwise_with_hooks_on_all_layers(name: str) -> None:
    sessions: list[NeuralDbg] = []

    def watch(model: Any) -> NeuralDbg:
        sessions.append(with_hooks(model))
        return sessions[-1]

    same(values(HOOKED[name], lambda model: contextlib.nullcontext()), values(HOOKED[name], watch), name)
    (dbg,) = sessions
    assert dbg.record().info.coverage["errors"] == 0
    assert not [hook.error for hook in dbg.hooks if hook.error]
    steps = [hook.executions for hook in dbg.hooks if hook.moment == "after_step"]
    assert steps[0] == dbg.steps > 0
