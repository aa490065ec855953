"""What a compiled graph is compared by at each call: no more for our hooks than that the model is the same."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.capture.captured_run import capture_run
from torch import nn

from neuraldbg.nouns import column

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.usefixtures("fresh_compiler")

X = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))


class Own(nn.Module):
    """A model of a class of its own."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def chain(layers: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(layers)))


def conditions(net: nn.Module, *, watched: bool, graded: bool = True, **options: Any) -> list[Any]:
    found: list[Any] = []

    def note(entries: list[Any]) -> list[bool]:
        found.extend(entries)
        return [True] * len(entries)

    def program() -> None:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        call = torch.compile(net, backend="aot_eager", options={"guard_filter_fn": note})
        for _ in range(2):
            if not graded:
                with torch.no_grad():
                    call(X)
                continue
            call(X).sum().backward()
            opt.step()

    if watched:
        capture_run(program, net, probes=False, **options)
    else:
        program()
    torch._dynamo.reset()
    return found


def test_dynamo_that_came_in_during_a_session_knows_torchs_own_call_after_it() -> None:
    program = """
import sys
import torch
from torch import nn
from neuraldbg import NeuralDbg
model = nn.Linear(2, 2)
assert "torch._dynamo" not in sys.modules
with NeuralDbg(model):
    import torch._dynamo.variables.nn_module as known
    model(torch.ones(1, 2)).sum().backward()
for module in (known, sys.modules["torch._dynamo.utils"]):
    assert module.unpatched_nn_module_call is nn.Module.__call__, module
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("make", [chain, Own])
def test_a_layer_more_adds_no_condition_of_ours(make: type[nn.Module]) -> None:
    more = [len(conditions(make(n), watched=True)) - len(conditions(make(n), watched=False)) for n in (2, 6)]
    assert more[0] == more[1]
    names = [entry.name for entry in conditions(make(), watched=True)]
    ours = [name for name in names if "neuraldbg" in name or "_forward_hooks[" in name]
    assert not [name for name in ours if ".samples" not in name]  # those kept before a graph break may differ


@pytest.mark.parametrize(("graded", "compiled"), [(True, "outside"), (False, "observe"), (False, "outside")])
@pytest.mark.parametrize("make", [chain, Own])
def test_a_layer_that_is_not_read_adds_no_condition_of_ours_either(
    make: type[nn.Module], graded: bool, compiled: str
) -> None:
    def more(layers: int) -> int:
        watched = conditions(make(layers), watched=True, graded=graded, compiled=compiled)
        return len(watched) - len(conditions(make(layers), watched=False, graded=graded))

    assert more(2) == more(6)


@pytest.mark.parametrize("make", [chain, Own])
def test_a_model_of_the_same_kind_is_not_taken_for_the_watched_one(make: type[nn.Module]) -> None:
    def program(net: nn.Module, other: nn.Module, call: Any) -> None:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        call(net, X).sum().backward()
        call(other, 100 * X).sum().backward()
        opt.step()

    whole = torch.compile(lambda net, x: net(x), fullgraph=True, backend="aot_eager")
    seen = []
    for call in (lambda net, x: net(x), whole):
        net, other = make(), make()
        seen.append(capture_run(lambda net=net, other=other, call=call: program(net, other, call), net, probes=False))
    path = "1" if make is chain else "layers.1"
    for kind in ("activation", "output_grad"):
        found, expected = (each.norm(kind, path) for each in (seen[1], seen[0]))
        assert found == pytest.approx(expected, rel=1e-4)


def test_hooks_of_the_program_are_still_conditions() -> None:
    net = Own()
    calls = []
    net.layers[0].register_forward_hook(lambda module, args, output: calls.append(1))
    names = [entry.name for entry in conditions(net, watched=True)]
    assert [name for name in names if "_forward_hooks[" in name]


def test_what_a_class_of_the_programs_own_holds_is_still_a_condition() -> None:
    factor = 1.0

    class Scaled(nn.Linear):
        def __call__(self, *args: Any) -> Any:
            return nn.Module.__call__(self, *args) * factor

    def scale(number: float) -> None:
        nonlocal factor
        factor = number

    net = nn.Sequential(Scaled(16, 16), nn.ReLU())
    outputs: list[torch.Tensor] = []

    def program() -> None:
        opt = torch.optim.SGD(net.parameters(), lr=0.0)
        call = torch.compile(net, backend="aot_eager")
        for number in (1.0, 3.0):
            scale(number)
            outputs.append(call(X))
            outputs[-1].sum().backward()
            opt.step()

    capture_run(program, net, probes=False)
    assert torch.allclose(outputs[1], 3.0 * outputs[0])


def steps(net: nn.Module, flags: Sequence[bool], *, compiled: bool) -> list[float]:
    """Train, with one value of ``net.flag`` a step, and return the losses."""
    call = torch.compile(net, backend="aot_eager") if compiled else net
    opt, losses = torch.optim.SGD(net.parameters(), lr=0.01), []
    for flag in flags:
        net.flag = flag
        opt.zero_grad()
        loss = call(X).square().mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def test_a_part_before_a_graph_break_may_keep_another_number_of_samples() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.more, self.last = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
            self.flag = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            if self.flag:
                x = self.more(x)
            torch._dynamo.graph_break()
            out: torch.Tensor = self.last(x)
            return out

    flags = True, True, False, True, False
    net, plain = Broken(), Broken()
    losses: list[float] = []
    seen = capture_run(lambda: losses.extend(steps(net, flags, compiled=True)), net, probes=False)
    assert losses == pytest.approx(steps(plain, flags, compiled=False), rel=1e-5)
    for layer in ("first", "last"):
        row = seen.row("activation", layer)
        assert [step.table[row, column("count")] for step in seen.steps] == [8 * 16] * 5


def test_another_layer_before_a_graph_break_gets_its_own_numbers() -> None:
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.one, self.other, self.last = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
            self.flag = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.one(x) if self.flag else self.other(x)
            torch._dynamo.graph_break()
            out: torch.Tensor = self.last(x)
            return out

    net = Either()
    seen = capture_run(lambda: steps(net, (True, False, True, False), compiled=True), net, probes=False)
    for layer, counts in (("one", [128, 0, 128, 0]), ("other", [0, 128, 0, 128]), ("last", [128] * 4)):
        row = seen.row("activation", layer)
        assert [step.table[row, column("count")] for step in seen.steps] == counts, layer


def test_another_torch_keeps_all_conditions_and_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    from neuraldbg.capture.compiled import dynamo_guards

    def odd(frame: object) -> None:
        raise AttributeError(frame)

    quietly, net = len(conditions(Own(), watched=True)), Own()
    monkeypatch.setattr(dynamo_guards, "traced_frames", odd)
    assert len(conditions(net, watched=True)) > quietly
