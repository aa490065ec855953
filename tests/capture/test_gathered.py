"""All gradients of a compiled graph are read by one operator; a layer that gets none stays unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tests.capture.riding import ride
from torch import nn

from neuraldbg.capture import gathered

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("fresh_compiler")

X = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
LAYERS = ("body", "act", "head", "aside", "unused")


class Net(nn.Module):
    """Layers that get a gradient, one whose output is detached, and one whose output nobody takes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.act, self.head = nn.Linear(16, 16), nn.ReLU(inplace=True), nn.Linear(16, 4)
        self.aside, self.unused = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.body(x))
        self.unused(x)
        return self.head(x) + self.aside(x).detach()


def program(call: Callable[[torch.Tensor], torch.Tensor], net: Net, *, twice: bool) -> None:
    opt = torch.optim.SGD([*net.body.parameters(), *net.head.parameters()], lr=0.01)
    for _ in range(2):
        opt.zero_grad()
        loss = call(X).square().mean()
        loss.backward(retain_graph=twice)
        if twice:
            loss.backward()
        opt.step()


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
@pytest.mark.parametrize("twice", [False, True])
def test_what_gets_no_gradient_stays_unseen_and_the_rest_is_as_in_eager_mode(backend: str, twice: bool) -> None:
    plain, net = Net(), Net()
    eager = ride(lambda: program(plain, plain, twice=twice), plain, probes=False)
    call = torch.compile(net, fullgraph=True, backend=backend)
    seen = ride(lambda: program(call, net, twice=twice), net, probes=False)
    for layer in LAYERS:
        reached = layer in ("body", "act", "head")
        assert seen.seen("output_grad", layer) == eager.seen("output_grad", layer) == reached, layer
        for stat in ("count", "total", "rms") if reached else ():
            found, expected = (each.stat("output_grad", layer, stat) for each in (seen, eager))
            assert found == pytest.approx(expected, rel=1e-4), (layer, stat)


def test_gradients_are_read_once_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    read, calls = gathered._read, []

    def note(taken: list[tuple[torch.Tensor, int, object]], handle: int) -> torch.Tensor:
        if gathered._gathered() is not None:
            calls.append(len(taken))
        return read(taken, handle)

    monkeypatch.setattr(gathered, "_read", note)
    net = Net()
    ride(lambda: program(torch.compile(net, fullgraph=True, backend="aot_eager"), net, twice=False), net, probes=False)
    assert calls == [3]
