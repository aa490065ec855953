"""Sessions that keep to a budget: most steps are light, the training is the same, and nothing bad is missed."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from tests.session.seeded_trainings import TRAININGS, same
from torch import Tensor, nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.guest import native

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.budget

TIGHT = {"capture": {"allowance_s": 0.0, "overhead": 1e-6}}
"""A budget in which all steps are light, but the first and those whose facts are read (one of 16)."""
LAST = 199


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


def train(
    dbg: NeuralDbg | contextlib.nullcontext[None],
    model: nn.Module,
    *,
    steps: int = LAST + 1,
    spoil: Callable[[int, Tensor, nn.Module], Tensor] | None = None,
    tamper: Callable[[int, nn.Module], None] | None = None,
) -> None:
    """Train; ``spoil`` may change a batch, ``tamper`` the gradients before the step."""
    draw = torch.Generator().manual_seed(1)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    with dbg:
        for step in range(steps):
            x = torch.randn(32, 8, generator=draw)
            y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
            if spoil is not None:
                x = spoil(step, x, model)
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if tamper is not None:
                tamper(step, model)
            opt.step()


def read(dbg: NeuralDbg) -> list[int]:
    """Steps that were read in full."""
    history = dbg.record().history
    return [int(step) for step, full in zip(history.steps, history.read, strict=True) if full]


@pytest.mark.parametrize("name", TRAININGS)
def test_light_steps_leave_the_training_as_it_is(name: str) -> None:
    program = TRAININGS[name]
    bare = program(lambda model: contextlib.nullcontext())
    same(bare, program(lambda model: NeuralDbg(model, settings=TIGHT)), "model")
    same(bare, program(lambda model: NeuralDbg(discover=True, settings=TIGHT)), "discover")


def test_most_steps_are_light_and_all_have_their_loss() -> None:
    model = net()
    dbg = NeuralDbg(model, settings=TIGHT)
    train(dbg, model)
    run = dbg.record()
    full = read(dbg)
    assert {0, 1, 2, 16, 64, 112} <= set(full)
    assert len(full) < 40
    loss, norm, rate = (run.scalar(name) for name in ("loss", "grad_norm", "lr"))
    assert list(loss.steps) == list(range(LAST + 1))
    assert len(rate.steps) == LAST + 1
    assert 1 <= max(b - a for a, b in zip(norm.steps, norm.steps[1:], strict=False)) <= 8
    cost = dbg.diagnose().run["coverage"]["cost"]
    assert cost["full_steps"] == len(full)
    assert cost["full_steps"] + cost["light_steps"] == LAST + 1
    assert dbg.diagnose().run["overhead_ratio"] == pytest.approx(cost["own_s"] / cost["training_s"])
    assert sum(cost["parts_s"].values()) == pytest.approx(cost["own_s"])


def test_the_norm_of_a_light_step_is_the_norm() -> None:
    model = net()
    norms: dict[int, float] = {}

    def note(step: int, model: nn.Module) -> None:
        norms[step] = math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters()))

    dbg = NeuralDbg(model, settings={"capture": {"allowance_s": 0.0, "overhead": 1e-3}})
    train(dbg, model, tamper=note)
    seen = dbg.record().scalar("grad_norm")
    assert len(seen.steps) > 20
    for step, value in zip(seen.steps, seen.values, strict=True):
        assert value == pytest.approx(norms[int(step)], rel=0.2 if step not in read(dbg) else 1e-5)


@pytest.mark.parametrize("where", ["input", "gradient", "weight"])
def test_a_nan_of_one_light_step_is_never_missed(where: str) -> None:
    model = net()
    bad = 101

    def spoil(step: int, x: Tensor, model: nn.Module) -> Tensor:
        if step == bad and where == "input":
            x[3, 2] = math.nan
        if step == bad and where == "weight":
            model[2].weight.data[4, 5] = math.nan
        return x

    def tamper(step: int, model: nn.Module) -> None:
        if step == bad and where == "gradient":
            model[2].weight.grad[4, 5] = math.nan

    dbg = NeuralDbg(model, settings=TIGHT)
    train(dbg, model, spoil=spoil, tamper=tamper)
    assert bad not in range(*sorted(read(dbg))[:2])
    first = min(event.first_step for event in dbg.diagnose().events if event.kind.startswith("nonfinite"))
    assert bad <= first <= bad + 1  # what sits in the weights shows in the next loss
    assert dbg.diagnose().verdict == "failing"
    if where == "input":  # the pass was made again at once, on a copy, although the step was light
        assert dbg.diagnose().hypotheses[0].cause == "nonfinite_input"


def test_a_spike_of_one_light_step_is_seen_and_looked_at() -> None:
    model = net()
    bad = 101

    def spoil(step: int, x: Tensor, model: nn.Module) -> Tensor:
        return x * 300 if step == bad else x

    dbg = NeuralDbg(model, settings=TIGHT)
    train(dbg, model, spoil=spoil)
    events = [event for event in dbg.diagnose().events if event.first_step == bad]
    assert {event.kind for event in events} & {"loss_spike", "gradient_spike"}
    assert set(range(bad + 1, bad + 9)) <= set(read(dbg))  # full steps on credit


@pytest.mark.skipif(native.native is None, reason="torch's operators would take too long for a look at each step")
@pytest.mark.parametrize("bad", [181, 182, 183, 186])
def test_a_spike_of_the_gradient_alone_is_seen_where_norms_are_not_read_at_each_step(bad: int) -> None:
    model = net()

    def tamper(step: int, model: nn.Module) -> None:
        if step == bad:
            for p in model.parameters():
                p.grad.mul_(1e4)
        elif step == bad + 1:  # the loss will tell nothing: as where the step is clipped, or is one of Adam
            with torch.no_grad():
                for p, before in zip(model.parameters(), kept, strict=True):
                    p.copy_(before)
                    p.grad.zero_()
        kept[:] = [p.detach().clone() for p in model.parameters()] if step < bad else kept

    kept: list[Tensor] = []
    dbg = NeuralDbg(model, settings=TIGHT)
    train(dbg, model, tamper=tamper)
    seen = dbg.record().scalar("grad_norm")
    assert len(seen.steps) < 100  # else this asks nothing
    assert bad in seen.steps
    assert any(event.kind == "gradient_spike" and event.first_step == bad for event in dbg.diagnose().events)


def test_two_optimizers_and_accumulation_keep_their_steps() -> None:
    torch.manual_seed(0)
    one, other = net(), net()
    dbg = NeuralDbg(discover=True, settings=TIGHT)
    opts = [torch.optim.Adam(m.parameters(), lr=1e-3) for m in (one, other)]
    with dbg:
        for _ in range(60):
            x = torch.randn(16, 8)
            for model, opt in zip((one, other), opts, strict=True):
                opt.zero_grad()
                for part in x.split(8):
                    model(part).square().mean().backward()
                opt.step()
    run = dbg.record()
    assert run.steps == 120
    assert set(run.scalar("backwards").values) == {2.0}
    assert dbg.diagnose().verdict != "failing"


@pytest.mark.parametrize("sparse", [False, True])
def test_an_embedding_in_light_steps(sparse: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 8, sparse=sparse), nn.Flatten(), nn.Linear(24, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    dbg = NeuralDbg(model, settings=TIGHT)
    with dbg:
        for _ in range(60):
            x = torch.randint(50, (16, 3))
            opt.zero_grad()
            F.cross_entropy(model(x), x[:, 0] % 2).backward()
            opt.step()
    assert dbg.diagnose().run["coverage"]["errors"] == 0
    assert dbg.record().steps == 60


@pytest.mark.parametrize("before", [False, True])
def test_hooks_are_lifted_in_light_steps_and_gone_at_the_end(before: bool) -> None:
    if before:  # another part of the program has compiled something
        torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(1))
    model = net()
    found: list[int] = []

    def look(step: int, model: nn.Module) -> None:
        found.append(sum(map(len, (model[0]._forward_hooks, model._forward_pre_hooks, model._forward_hooks))))

    train(NeuralDbg(model, settings=TIGHT), model, tamper=look)
    assert set(found) == ({0, 3} if before else {0})  # else what stands in for Module.__call__ reads
    assert found.count(0) > 100
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_layers_compiled_while_their_hooks_are_lifted_are_seen_when_reading_goes_on() -> None:
    torch._dynamo.reset()
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    dbg = NeuralDbg(model, settings=TIGHT)
    x = torch.randn(32, 8)
    call: Callable[[Tensor], Tensor] = model
    with dbg:
        for step in range(80):
            if step == 40:
                call = torch.compile(model, backend="aot_eager")
            opt.zero_grad()
            call(x).square().mean().backward()
            opt.step()
    torch._dynamo.reset()
    assert 64 in read(dbg)
    run = dbg.record()
    row = next(i for i, site in enumerate(run.layout.sites) if (site.kind, site.module) == ("activation", "2"))
    assert 64 in run.series(row, "rms").steps


class Own(nn.Sequential):
    """With a ``forward`` of its own: of torch's containers Dynamo compiles nothing in place."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x


@pytest.mark.parametrize("how", ["wrapped", "in place", "forward", "a part"])
def test_a_compiled_model_is_not_compiled_again_when_reading_goes_on_and_off(how: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    # Norms and dropouts are what readers visit with hooks of their own in the first steps.
    layers = Own(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
    model: nn.Module = nn.Sequential(nn.Linear(8, 8), layers) if how == "a part" else layers
    call: Any = model
    if how == "wrapped":
        call = torch.compile(model, fullgraph=True)
    elif how == "forward":
        model.forward = torch.compile(model.forward, fullgraph=True)
    else:
        layers.compile(fullgraph=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    graphs: list[int] = []
    dbg = NeuralDbg(model, settings=TIGHT)
    x = torch.randn(32, 8)
    with dbg:
        for _ in range(80):
            opt.zero_grad()
            call(x).square().mean().backward()
            opt.step()
            graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    torch._dynamo.reset()
    assert graphs[0] == graphs[-1] > 0
    full = read(dbg)
    assert 64 in full
    assert len(full) < 40
    name = "1.0" if how == "a part" else "0"
    assert len(dbg.get_gradient_history(name).steps) >= len(full) - 1


def test_the_breakdown_that_doctor_prints() -> None:
    from neuraldbg.cli.timed_run import lines

    model = net()
    dbg = NeuralDbg(model, settings=TIGHT)
    train(dbg, model)
    told: dict[str, Any] = dict(lines(dbg.diagnose().run["coverage"]["cost"]))
    assert told["steps"].startswith("200: ")
    assert "light" in told["steps"]
    assert "us a step" in told["watching it"]
    assert told["budget"] == "0.00%, and 0 s at the start of a run"


@pytest.mark.parametrize("options", [{}, {"overhead": None}, {"settings": {"capture": {"allowance_s": 0.0}}}])
def test_the_overhead_of_a_step_is_a_part_of_its_duration(options: Any) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(30)))
    optimizer = torch.optim.Adam(model.parameters())
    with NeuralDbg(model, **options) as dbg:
        for _ in range(60):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).pow(2).mean().backward()
            optimizer.step()
    run = dbg.record()
    duration, overhead = run.scalar("duration").values, run.scalar("overhead").values
    assert len(duration) == len(overhead) == 60
    assert (overhead <= duration).all()
    assert (overhead >= 0).all()
    assert overhead.sum() > 0.2 * run.info.coverage["cost"]["own_s"], "steps are not told to be free"
