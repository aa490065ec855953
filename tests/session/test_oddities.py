"""The less trodden parts of torch: bitwise the same, every step seen, no internal error."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from tests.session.oddities import ODDITIES
from tests.session.test_bitwise import same

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
