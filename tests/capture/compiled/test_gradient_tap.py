"""All gradients of a compiled graph are read by a few operators; a layer that gets none stays unseen."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
import torch
from functorch.compile import make_boxed_func
from tests.capture.captured_run import capture_run
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.utils import fresh_cache, run_fw_bw_and_get_code

from neuraldbg.capture.compiled import gradient_tap, operators, traced_hook

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
    eager = capture_run(lambda: program(plain, plain, twice=twice), plain, probes=False)
    call = torch.compile(net, fullgraph=True, backend=backend)
    # A cache of its own: torch keeps compiled graphs on disk for all processes, and refuses, with hooks or without, to
    # walk one twice that was kept by a program that walked it once.
    with fresh_cache() if twice else nullcontext():
        seen = capture_run(lambda: program(call, net, twice=twice), net, probes=False)
    for layer in LAYERS:
        reached = layer in ("body", "act", "head")
        assert seen.seen("output_grad", layer) == eager.seen("output_grad", layer) == reached, layer
        for stat in ("count", "total", "rms") if reached else ():
            found, expected = (each.stat("output_grad", layer, stat) for each in (seen, eager))
            assert found == pytest.approx(expected, rel=1e-4), (layer, stat)


def test_gradients_are_read_once_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    read, calls = gradient_tap.read_taken, []

    def note(taken: list[tuple[torch.Tensor, int, object]], handle: int) -> torch.Tensor:
        if gradient_tap.gathered() is not None:
            calls.append(len(taken))
        return read(taken, handle)

    monkeypatch.setattr(gradient_tap, "read_taken", note)
    net = Net()
    capture_run(
        lambda: program(torch.compile(net, fullgraph=True, backend="aot_eager"), net, twice=False), net, probes=False
    )
    assert calls == [3]


def deep() -> nn.Sequential:
    torch.manual_seed(0)
    pairs = [layer for _ in range(20) for layer in (nn.Linear(16, 16), nn.Tanh())]
    return nn.Sequential(*pairs, nn.Linear(16, 4))


def train(call: nn.Module, net: nn.Module) -> None:
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(2):
        opt.zero_grad()
        call(X).square().mean().backward()
        opt.step()


class Own(nn.Sequential):
    """With a ``forward`` of its own, around which Dynamo calls hooks outside of the graph; may break it."""

    broken = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self):
            x = layer(x)
            if self.broken and number == gradient_tap.TOGETHER:
                torch._dynamo.graph_break()
        return x


class Broken(Own):
    broken = True


@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        (nn.Sequential, "inductor"),
        (nn.Sequential, "eager"),
        (Own, "inductor"),
        (Own, "aot_eager"),
        (Broken, "inductor"),
    ],
)
def test_of_a_deep_model_no_layer_is_lost(kind: type[nn.Sequential], backend: str) -> None:
    plain, net = deep(), kind(*deep())
    eager = capture_run(lambda: train(plain, plain), plain, probes=False)
    call = torch.compile(net, fullgraph=kind is not Broken, backend=backend)
    seen = capture_run(lambda: train(call, net), net, probes=False)
    for layer in map(str, range(len(net))):
        for of in ("activation", "output_grad"):
            assert seen.stat(of, layer, "rms") == pytest.approx(eager.stat(of, layer, "rms"), rel=1e-4), layer
            assert seen.stat(of, layer, "count") == eager.stat(of, layer, "count"), (of, layer)


def test_of_a_deep_model_some_samples_are_read_at_a_time() -> None:
    net, read = deep(), {operators.observe: [], operators.observe_gradients: []}

    def compiler(module: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        for node in module.graph.find_nodes(op="call_function", target=operators.observe_gradients):
            read[operators.observe_gradients].append(len(node.args[0]))
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.auto_functionalized_v2):
            read[node.args[0]].append(len(node.kwargs["xs"]))
        return make_boxed_func(module.forward)

    call = torch.compile(net, fullgraph=True, backend=aot_autograd(fw_compiler=compiler))
    capture_run(lambda: train(call, net), net, probes=False)
    assert list(read.values()) == [[gradient_tap.TOGETHER, len(net) - gradient_tap.TOGETHER]] * 2


class _Spoilt(torch.autograd.Function):
    """Identity whose backward writes to the gradient that it gets."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        return grad.mul_(100.0)


class Spoiling(nn.Module):
    """Writes over what its layers gave, in both passes, and over what it has given to one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.given, self.body, self.same, self.head = nn.Identity(), nn.Linear(16, 16), nn.Identity(), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = self.given(x.clone())
        y = self.body(x)
        z = self.same(_Spoilt.apply(y.tanh()))
        given.add_(1000.0)
        y.mul_(1000.0)
        out: torch.Tensor = self.head(z)
        return out


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_what_is_read_as_a_whole_is_as_it_was_at_its_layer(backend: str) -> None:
    plain, net = Spoiling(), Spoiling()
    eager = capture_run(lambda: train(plain, plain), plain, probes=False)
    seen = capture_run(lambda: train(torch.compile(net, fullgraph=True, backend=backend), net), net, probes=False)
    for layer, of in (
        ("given", "activation"),
        *itertools.product(("body", "same", "head"), ("activation", "output_grad")),
    ):
        assert seen.stat(of, layer, "rms") == pytest.approx(eager.stat(of, layer, "rms"), rel=1e-4), (of, layer)


def _copies(width: int) -> int:
    """Compile a watched chain of layers, and count the kernels that take samples."""
    torch.manual_seed(0)
    net = nn.Sequential(*(each for _ in range(3) for each in (nn.Linear(16, width), nn.Tanh(), nn.Linear(width, 16))))
    code: list[str] = []

    def program() -> None:
        call = torch.compile(net, fullgraph=True)
        code.extend(run_fw_bw_and_get_code(lambda: call(X).square().mean())[1])

    capture_run(program, net, probes=False)
    assert len(code) == 2
    return sum(
        line.count("_neg") for each in code for line in each.splitlines() if line.lstrip().startswith("cpp_fused")
    )


def test_of_a_tensor_no_longer_than_a_sample_no_copy_is_made() -> None:
    assert _copies(traced_hook.KEPT // len(X)) <= 1  # what the graph returns is copied
    assert _copies(2 * traced_hook.KEPT // len(X)) > 1


class _Pair(nn.Module):
    """Returns a tensor in a tuple, for which nothing is kept where the block is compiled by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return self.line(x), None


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = _Pair()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.pair(x)[0].tanh()
        return out


def test_a_block_that_is_compiled_by_itself_is_one_graph_within_the_model_and_outside() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 16), *(_Block() for _ in range(3)))

    def program() -> None:
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for block in list(net)[1:]:
            block.compile(backend="aot_eager")
        for _ in range(2):
            opt.zero_grad()
            (net(X) + net[1](X)).square().mean().backward()
            opt.step()

    capture_run(program, net, probes=False)
    watched = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    program()
    assert watched == torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_gradient_by_function_transforms_is_what_it_is_without_us(backend: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    found: list[dict[str, torch.Tensor]] = []

    def program() -> None:
        def gradient(params: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return torch.func.grad(lambda q: torch.func.functional_call(net, q, (X,)).square().mean())(params)

        params = {name: p.detach() for name, p in net.named_parameters()}
        found.append(torch.compile(gradient, backend=backend)(params))

    capture_run(program, net, probes=False)
    torch._dynamo.reset()
    program()
    for name, value in found[1].items():
        torch.testing.assert_close(found[0][name], value)
