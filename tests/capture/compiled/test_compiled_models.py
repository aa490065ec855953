"""torch.compile: one graph, no break, seen whether attached before or after the first compiled call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import capture_run
from tests.capture.simulated_device import SimulatedDevice
from tests.families import some
from torch import nn
from torch.utils.checkpoint import checkpoint

from neuraldbg.capture import Capture
from neuraldbg.capture.compiled.traced_hook import KEPT
from neuraldbg.capture.statistics.device import placement
from neuraldbg.nouns import column

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("fresh_compiler")

X, Y = torch.randn(32, 16, generator=torch.Generator().manual_seed(1)), torch.arange(32) % 4


class Own(nn.Sequential):
    """With a ``forward`` of its own: of torch's containers Dynamo compiles nothing in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self:
            x = layer(x)
        return x


def model(kind: type[nn.Sequential] = nn.Sequential) -> nn.Sequential:
    torch.manual_seed(0)
    return kind(nn.Linear(16, 32), nn.ReLU(inplace=True), nn.LayerNorm(32), nn.Linear(32, 4))


def train(call: nn.Module, parameters: list[nn.Parameter], steps: int = 4) -> list[float]:
    opt, losses = torch.optim.Adam(parameters, lr=0.01), []
    for _ in range(steps):
        opt.zero_grad()
        loss = F.cross_entropy(call(X), Y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("when", ["attached before", "attached after", "compiled in place", "discovered"])
def test_a_compiled_model_is_seen_like_an_eager_one(when: str) -> None:
    plain = model()
    eager = capture_run(lambda: train(plain, list(plain.parameters())), plain)
    net = model(Own if when == "compiled in place" else nn.Sequential)
    call: nn.Module = net
    if when == "compiled in place":
        net.compile(fullgraph=True)
    else:
        call = torch.compile(net, fullgraph=True)
    if when == "attached after":
        call(X).sum().backward()
        net.zero_grad()
    watched = () if when == "discovered" else (net,)
    seen = capture_run(lambda: train(call, list(net.parameters())), *watched)
    assert len(seen.steps) == 4
    assert seen.scalars("loss") == pytest.approx(eager.scalars("loss"), rel=1e-5)
    for kind in ("activation", "output_grad"):
        for layer in ("0", "1", "2", "3"):
            assert seen.norm(kind, layer) == pytest.approx(eager.norm(kind, layer), rel=1e-4), (kind, layer)
    assert not torch._dynamo.utils.counters["graph_break"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1 + (when == "attached after")


def test_nothing_recompiles_after_the_first_step() -> None:
    net = model()
    call = torch.compile(net, fullgraph=True)
    frames = []

    def program() -> None:
        train(call, list(net.parameters()), 2)
        frames.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        train(call, list(net.parameters()), 12)
        frames.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    capture_run(program, net)
    assert frames[0] == frames[1] == 1


def test_training_is_bitwise_the_same_here_and_the_graph_can_be_left_alone() -> None:
    bare = model()
    expected = train(torch.compile(bare, fullgraph=True), list(bare.parameters()))
    for mode in ("observe", "outside"):
        torch._dynamo.reset()
        net = model()
        call = torch.compile(net, fullgraph=True)
        losses: list[float] = []
        seen = capture_run(
            lambda call=call, net=net, losses=losses: losses.extend(train(call, list(net.parameters()))),
            net,
            compiled=mode,
        )
        assert losses == expected
        assert seen.seen("activation", "0") is (mode == "observe")
        assert seen.seen("param_grad", "0", name="weight")
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), bare.parameters(), strict=True))


def test_a_whole_training_function_compiled_is_still_seen() -> None:
    net = model()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    @torch.compile
    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(net(x), y)

    losses = []

    def program() -> None:
        for _ in range(3):
            opt.zero_grad()
            loss = loss_of(X, Y)
            loss.backward()
            opt.step()
            losses.append(loss.item())

    seen = capture_run(program, net)
    assert len(seen.steps) == 3
    assert seen.scalars("loss") == pytest.approx(losses)
    assert seen.seen("activation", "0")
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.parametrize("when", ["attached before", "attached after", "moved after"])
def test_on_another_device_a_compiled_model_is_seen_too(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = model()
    eager = capture_run(lambda: train(plain, list(plain.parameters())), plain)
    bare = model()
    expected = train(torch.compile(bare, fullgraph=True), list(bare.parameters()))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    net = model()
    call = torch.compile(net, fullgraph=True)
    if when == "attached after":
        call(X).sum().backward()
        net.zero_grad()
    far = SimulatedDevice(monkeypatch, 1)
    losses, first = [], 0
    if when == "moved after":  # no table is made while a graph runs, which is what the first step does
        first = 1
        monkeypatch.setattr(placement, "plain", lambda x: False)

    def program() -> None:
        losses.extend(train(call, list(net.parameters())))
        assert far.waits == 0

    seen = capture_run(program, net, probes=False, compiled="observe")
    assert losses == pytest.approx(expected, rel=1e-6)
    assert len(seen.steps) == 4
    assert seen.scalars("loss") == pytest.approx(eager.scalars("loss"), rel=1e-5)
    for kind in ("activation", "output_grad"):
        for layer in ("0", "1", "2", "3"):
            for step in range(first, 4):
                there, here = (each.norm(kind, layer, step=step) for each in (seen, eager))
                assert there == pytest.approx(here, rel=1e-4), (kind, layer, step)
                count = seen.stat(kind, layer, "count", step=step)
                assert count == eager.stat(kind, layer, "count", step=step)
    assert not torch._dynamo.utils.counters["graph_break"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == (2 if when == "attached after" else 1)


def test_on_another_device_a_compiled_graph_is_left_alone_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = model()
    graphs: list[list[str]] = []

    def noted(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    expected = train(torch.compile(bare, fullgraph=True, backend=noted), list(bare.parameters()))
    torch._dynamo.reset()
    net = model()
    call = torch.compile(net, fullgraph=True, backend=noted)
    SimulatedDevice(monkeypatch, 1)
    losses: list[float] = []
    seen = capture_run(lambda: losses.extend(train(call, list(net.parameters()))), net, probes=False)
    assert losses == expected
    assert graphs[0] == graphs[1]
    assert not seen.seen("activation", "0")
    assert seen.seen("param_grad", "0", name="weight")
    coverage = seen.capture.coverage()
    assert coverage["left_compiled"] == ["cpu"]  # which plays the other device
    assert coverage["never_fired"] == []
    assert coverage["seen"] == 0


def test_a_layer_that_is_never_called_is_named_beside_a_part_that_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.unused = nn.Linear(16, 16), model(), nn.Linear(3, 3)
            self.compiled = [torch.compile(self.head, fullgraph=True)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.compiled[0](self.body(x))

    net = Half()
    SimulatedDevice(monkeypatch, 1)
    seen = capture_run(lambda: train(net, list(net.parameters())), net, probes=False)
    coverage = seen.capture.coverage()
    assert coverage["never_fired"] == ["unused"]
    assert coverage["left_compiled"] == ["cpu"]
    assert seen.seen("activation", "body")


def test_layers_with_several_outputs_are_left_alone_on_another_device_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pair(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + 1.0, x * 2.0

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair, self.linear = Pair(), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(sum(self.pair(x)))

    net = Sum()
    call = torch.compile(net, fullgraph=True)
    SimulatedDevice(monkeypatch, 1)
    seen = capture_run(lambda: train(call, list(net.parameters())), net, probes=False)
    assert seen.capture.coverage()["never_fired"] == []


@pytest.mark.budget
def test_on_another_device_a_compiled_graph_rests_in_light_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    far = SimulatedDevice(monkeypatch, 1)
    net = model()
    call = torch.compile(net, fullgraph=True)
    read = []

    def program() -> None:
        train(call, list(net.parameters()), 4)
        (table,) = seen_by.hooks.table.device_tables.values()
        sites = seen_by.hooks.table.sites
        monkeypatch.setattr(table, "observe", lambda x, row, *args: read.append(sites[row].kind))
        train(call, list(net.parameters()), 10)  # 4 and 8 are read, since they are powers of two
        assert far.waits == 0

    made = Capture.__init__

    def note(self: Capture, *args: object, **kwargs: object) -> None:
        nonlocal seen_by
        seen_by = self
        made(self, *args, **kwargs)

    seen_by: Capture
    monkeypatch.setattr(Capture, "__init__", note)
    seen = capture_run(program, net, probes=False, compiled="observe", overhead=1e-6, allowance_s=0.0)
    full = [step.index for step in seen.steps if not step.light]
    assert len(seen.steps) == 14
    in_graph = [kind for kind in read if kind in ("activation", "output_grad")]
    assert len(in_graph) == 8 * len([step for step in full if step >= 4])
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Blocks(nn.Module):
    """A model of a class of its own, whose hooks Dynamo calls outside of the graph."""

    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(10)), nn.Linear(16, 4)
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(x)


def graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


LAYERS = ("blocks.0.up", "blocks.0", "blocks.9.down", "head")


@pytest.mark.parametrize(
    "how", some(["whole", "checkpointed", "each block", "aot_eager", "eager", "in a loop of sizes"], 2)
)
def test_models_of_ones_own_are_seen_whole_and_make_no_more_graphs(how: str) -> None:
    def call_of(net: Blocks) -> nn.Module:
        if how == "each block":
            for block in net.blocks:
                block.compile(fullgraph=True)
            return net
        return torch.compile(net, fullgraph=True, backend=how if "eager" in how else "inductor")

    def run(net: Blocks) -> None:
        call = call_of(net) if net.head.weight.requires_grad else net
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(5):
            x, y = (X[: 32 - step], Y[: 32 - step]) if how == "in a loop of sizes" else (X, Y)
            opt.zero_grad()
            F.cross_entropy(call(x), y).backward()
            opt.step()

    checkpointed = how == "checkpointed"
    run(Blocks(checkpointed=checkpointed))
    bare = graphs()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    net = Blocks(checkpointed=checkpointed)
    seen = capture_run(lambda: run(net), net)
    assert graphs() == bare
    assert not torch._dynamo.utils.counters["graph_break"]
    torch._dynamo.reset()
    plain = Blocks(checkpointed=checkpointed)
    eager = capture_run(lambda: with_disabled(run, plain), plain)
    for kind in ("activation", "output_grad"):
        for layer in LAYERS:
            assert seen.norm(kind, layer) == pytest.approx(eager.norm(kind, layer), rel=1e-4), (kind, layer)


def with_disabled(run: Callable[[nn.Module], None], net: nn.Module) -> None:
    with torch.compiler.set_stance("force_eager"):
        run(net)


def test_of_a_large_output_a_sample_is_read_that_speaks_for_it() -> None:
    def make() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 24, 3), nn.BatchNorm2d(24), nn.ReLU(), nn.Flatten(), nn.Linear(21_600, 4))

    x = torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    def program(call: nn.Module, net: nn.Module) -> None:
        opt = torch.optim.SGD(net.parameters(), lr=0.001)
        for _ in range(3):
            opt.zero_grad()
            F.cross_entropy(call(x), Y[:16]).backward()
            opt.step()

    whole, net = make(), make()
    every = capture_run(lambda: program(whole, whole), whole, block_cap=10**9)
    part = capture_run(lambda: program(torch.compile(net, fullgraph=True), net), net)
    for layer in ("0", "1", "2"):
        total = every.stat("activation", layer, "count")
        assert part.stat("activation", layer, "count") <= KEPT < part.stat("activation", layer, "total") == total
        for stat in ("mean", "std", "rms"):
            found, expected = (each.stat("activation", layer, stat) for each in (part, every))
            bound = 0.05 * (4096 / KEPT) ** 0.5  # an error grows like this as a sample shrinks
            assert found == pytest.approx(expected, abs=bound), (layer, stat)


def test_a_default_of_another_dtype_changes_nothing() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        call = torch.compile(net, fullgraph=True, backend="aot_eager")

        def program() -> None:
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(2):
                opt.zero_grad()
                F.cross_entropy(call(X.double()), Y).backward()
                opt.step()

        seen = capture_run(program, net)
    finally:
        torch.set_default_dtype(torch.float32)
    assert seen.stat("activation", "1", "count") == seen.stat("output_grad", "1", "count") == 32 * 32


@pytest.mark.budget
def test_steps_that_are_not_read_leave_the_table_alone_and_make_no_graph() -> None:
    net = Blocks()
    call = torch.compile(net, fullgraph=True)
    settings = {"overhead": 1e-9, "allowance_s": 0.0}
    seen = capture_run(lambda: train(call, list(net.parameters()), 90), net, **settings)
    assert graphs() == 1
    full = [step for step in seen.steps if len(step.table)]
    assert 0 < len(full) < len(seen.steps) == 90
    row = seen.row("activation", "head")
    assert {step.table[row, column("count")] for step in full} == {128}


def test_a_compiled_model_leaves_no_name_of_ours_in_its_module() -> None:
    scope: dict[str, object] = {"__name__": "stranger", "nn": nn, "torch": torch}
    code = """
class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 8), nn.Linear(8, 4)

    def forward(self, x):
        h = torch.relu(self.a(x))
        torch._dynamo.graph_break()
        return self.b(h)
"""
    exec(code, scope)
    before = set(scope)
    net = scope["Broken"]()  # type: ignore[operator]

    seen = capture_run(lambda: train(torch.compile(net, backend="eager"), list(net.parameters())), net)

    assert seen.seen("activation", "b")
    assert [name for name in set(scope) - before if not name.startswith("__")] == []
