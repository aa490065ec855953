"""Where torch.compile leaves parts of a program in Python they are left there under us, too: as many graphs as without
us, none of our own code, and the same numbers to the bit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import CapturedRun, capture_run
from torch import Tensor, nn

import neuraldbg

How: TypeAlias = Callable[[nn.Module, torch.optim.Optimizer], Callable[[], float]]
TOKENS = torch.randint(0, 16, (6, 5), generator=torch.Generator().manual_seed(1))


class Recurrent(nn.Module):
    """Dynamo gives its ``forward`` up as a whole: it does not trace an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(16, 8)
        self.norm = nn.LayerNorm(8)
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 16)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.rnn(self.norm(self.token(tokens)))
        return self.head(F.gelu(hidden))


class Printing(Recurrent):
    """A graph that breaks between its layers."""

    def forward(self, tokens: Tensor) -> Tensor:
        found = self.norm(self.token(tokens))
        sys.stderr.write("half way")
        return self.head(F.gelu(found))


class Hooked(Recurrent):
    """With a hook of the program's own, for which Dynamo compiles what it had given up."""

    def __init__(self) -> None:
        super().__init__()
        self.norm.register_forward_hook(lambda *_: None)


def whole(net: nn.Module, opt: torch.optim.Optimizer) -> Callable[[], float]:
    """The training step itself is compiled, and breaks at its backward pass and more."""

    @torch.compile
    def step() -> Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(net(TOKENS).flatten(0, 1), TOKENS.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        return loss

    return lambda: step().item()


def model_alone(net: nn.Module, opt: torch.optim.Optimizer) -> Callable[[], float]:
    call = torch.compile(net)

    def step() -> float:
        opt.zero_grad()
        loss = F.cross_entropy(call(TOKENS).flatten(0, 1), TOKENS.flatten())
        loss.backward()
        opt.step()
        return loss.item()

    return step


def trained(
    kind: type[nn.Module], how: How, *, watched: bool
) -> tuple[list[float], list[Tensor], int, CapturedRun | None]:
    """Return losses, weights, the number of graphs, and what was seen."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()
    torch.manual_seed(0)
    net, losses = kind(), []

    def program() -> None:
        step = how(net, torch.optim.Adam(net.parameters(), lr=0.01))
        losses.extend(step() for _ in range(6))

    seen = capture_run(program, net) if watched else program()
    graphs = torch._dynamo.utils.counters["stats"].get("unique_graphs", 0)
    return losses, [p.detach().clone() for p in net.parameters()], graphs, seen


@pytest.mark.parametrize("how", [model_alone, whole])
@pytest.mark.parametrize("kind", [Recurrent, Printing, Hooked])
def test_dynamo_does_what_it_does_without_us(kind: type[nn.Module], how: How) -> None:
    losses, weights, graphs, _ = trained(kind, how, watched=False)
    losses_, weights_, graphs_, seen = trained(kind, how, watched=True)
    assert graphs_ == graphs
    assert losses_ == losses
    assert all(map(torch.equal, weights_, weights))
    compiled = {made.co_filename or "" for made in torch._dynamo.utils.get_compilation_metrics()}
    assert compiled or not graphs
    assert not [file for file in compiled if file.startswith(str(Path(neuraldbg.__file__).parent))]
    assert seen is not None
    assert seen.scalars("loss") == pytest.approx(losses, rel=1e-5)
    for layer in ("token", "norm", "head"):
        assert seen.norm("activation", layer) > 0, layer
