"""An exception of the program's that falls into the attaching to a model leaves nothing half done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.layers import hook_manager
from neuraldbg.capture.parameters import parameters

if TYPE_CHECKING:
    from collections.abc import Callable


class TimeUpError(BaseException):
    """A time limit of the program's."""


PLACES = {
    "a layer": (hook_manager.HookManager, "add_layer", 3),
    "a parameter": (parameters.Params, "add", 2),
    "the end": (parameters.Params, "add", 5),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_next_call_attaches_anew(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, at = PLACES[place]
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise TimeUpError
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupted)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(discover=True) as dbg:
        with pytest.raises(TimeUpError):
            model(torch.ones(2, 4))
        for _ in range(10):
            optimizer.zero_grad()
            model(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()
        run = dbg.record()
    seen = run.info.coverage
    assert (seen["errors"], seen["unread"], seen["models"], seen["never_fired"]) == (0, {}, 1, [])
    read = {site.module for row, site in enumerate(run.layout.sites) if len(run.series(row, "rms").steps) > 3}
    assert read - {""} == {"0", "1", "2.0", "2.1", "3"}
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
