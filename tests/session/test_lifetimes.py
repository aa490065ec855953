"""What the program lets go of dies at the moment at which it would die bare: models, parameters, optimizers, batches,
losses and their graphs, loaders and schedulers. The diagnosis still knows of all of them.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests import malloc
from torch import Tensor, nn

from neuraldbg import NeuralDbg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Log = list[str]
SESSIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "full": {"overhead": None},
    "light": {"overhead": 0.0001, "settings": {"capture": {"allowance_s": 0.0}}},
}


class Told:
    """Notes deaths and the program's moments in the order in which they come."""

    def __init__(self) -> None:
        self.log: Log = []

    def watch(self, thing: Any, name: str) -> Any:
        weakref.finalize(thing, self.log.append, name)
        return thing

    def at(self, moment: str) -> None:
        self.log.append(f"-- {moment}")


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))


def plain(t: Told, *, steps: int = 8, optimizer_first: bool = False, evaluates: bool = False) -> None:
    model = t.watch(net(), "model")
    t.watch(model[0], "layer")
    t.watch(model[0].weight, "weight")
    opt = t.watch(torch.optim.Adam(model.parameters(), lr=0.1), "optimizer")
    for i in range(steps):
        x = t.watch(torch.randn(4, 3), f"batch {i}")
        out = t.watch(model(x), f"output {i}")
        loss = t.watch(out.pow(2).mean(), f"loss {i}")
        del x
        t.at(f"batch {i} let go")
        opt.zero_grad()
        loss.backward()
        t.at(f"backward {i}")
        del out, loss
        t.at(f"loss {i} let go")
        opt.step()
        t.at(f"step {i}")
    if evaluates:  # somebody has forgotten no_grad
        x = t.watch(torch.randn(4, 3), "last batch")
        t.watch(model(x), "last output")
        del x
        t.at("evaluated")
    if optimizer_first:
        del opt
        t.at("optimizer let go")
        del model
        t.at("model let go")
    else:
        del model
        t.at("model let go")
        del opt
        t.at("optimizer let go")


def hooks_that_hold_the_model(t: Told) -> None:
    model = t.watch(net(), "model")
    opt = t.watch(torch.optim.SGD(model.parameters(), lr=0.1), "optimizer")
    for p in model.parameters():
        p.register_hook(lambda g, held=model: g * 1.0 if held is not None else g)
    for i in range(6):
        opt.zero_grad()
        model(torch.randn(4, 3)).pow(2).mean().backward()
        opt.step()
        t.at(f"step {i}")
    del model, opt, p
    gc.collect()
    t.at("collected")


def loader_and_schedule(t: Told) -> None:
    model = t.watch(net(), "model")
    opt = t.watch(torch.optim.SGD(model.parameters(), lr=0.1), "optimizer")
    schedule = t.watch(torch.optim.lr_scheduler.StepLR(opt, 2), "schedule")
    data = t.watch(torch.utils.data.TensorDataset(torch.randn(24, 3)), "data")
    loader = t.watch(torch.utils.data.DataLoader(data, batch_size=4, shuffle=True), "loader")
    for (x,) in loader:
        t.watch(x, "batch")
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()
        schedule.step()
        t.at("step")
    del x, loader, data
    t.at("data let go")
    del model, opt, schedule
    gc.collect()
    t.at("collected")


def by_hand(t: Told) -> None:
    model = t.watch(net(), "model")
    for i in range(12):
        loss = t.watch(model(torch.randn(4, 3)).pow(2).mean(), f"loss {i}")
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(0.1 * p.grad)
                p.grad = None
        t.at(f"step {i}")
    del loss, model, p
    t.at("model let go")


def gan(t: Told) -> None:
    g = t.watch(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3)), "generator")
    d = t.watch(nn.Linear(3, 1), "critic")
    og = t.watch(torch.optim.Adam(g.parameters()), "optimizer of g")
    od = t.watch(torch.optim.Adam(d.parameters()), "optimizer of d")
    for i in range(8):
        fake = t.watch(g(torch.randn(4, 2)), f"fake {i}")
        od.zero_grad()
        t.watch(d(fake.detach()).mean() - d(torch.randn(4, 3)).mean(), f"critic's loss {i}").backward()
        od.step()
        og.zero_grad()
        t.watch(-d(fake).mean(), f"generator's loss {i}").backward()
        og.step()
        del fake
        t.at(f"step {i}")
    del g
    t.at("generator let go")
    del og, od
    t.at("optimizers let go")
    del d
    t.at("critic let go")


def steps_within_backward(t: Told) -> None:
    model = t.watch(net(), "model")
    steppers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda q, held=steppers: (held[q].step(), held[q].zero_grad(), None)[2])
    for i in range(8):
        model(torch.randn(4, 3)).pow(2).mean().backward()
        t.at(f"step {i}")
    del model, p, steppers
    gc.collect()
    t.at("collected")


def closures(t: Told) -> None:
    model = t.watch(nn.Linear(3, 1), "model")
    opt = t.watch(torch.optim.LBFGS(model.parameters()), "optimizer")
    x = torch.randn(8, 3)

    def closure(opt: Any = opt, model: Any = model) -> Tensor:
        opt.zero_grad()
        loss: Tensor = t.watch(model(x).pow(2).mean(), "loss")
        loss.backward()
        return loss

    for i in range(4):
        opt.step(closure)
        t.at(f"step {i}")
    del closure, opt
    t.at("optimizer let go")
    del model
    t.at("model let go")


def a_pass_raises(t: Told) -> None:
    model = t.watch(nn.Linear(3, 1), "model")
    opt = t.watch(torch.optim.SGD(model.parameters(), lr=0.1), "optimizer")
    for i in range(6):
        x = t.watch(torch.randn(4, 2 if i == 3 else 3), f"batch {i}")
        with contextlib.suppress(RuntimeError):
            model(x).mean().backward()
            opt.step()
        del x
        t.at(f"step {i}")
    del model, opt
    t.at("model let go")


def a_layer_is_replaced(t: Told) -> None:
    model = t.watch(net(), "model")
    opt = t.watch(torch.optim.SGD(model.parameters(), lr=0.1), "optimizer")
    for i in range(20):
        if i == 9:
            t.watch(model[3], "old layer")
            model[3] = nn.Linear(4, 1)
            t.at("layer replaced")
            opt = t.watch(torch.optim.SGD(model.parameters(), lr=0.1), "new optimizer")
            t.at("optimizer replaced")
        opt.zero_grad()
        model(torch.randn(4, 3)).pow(2).mean().backward()
        opt.step()
        t.at(f"step {i}")
    del model, opt
    t.at("model let go")


def its_holder_dies_first(t: Told) -> None:
    model = t.watch(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), "model")
    body, head = model[0], model[2]
    opt = t.watch(torch.optim.SGD(model.parameters(), lr=0.1), "optimizer")
    for i in range(9):
        if i == 5:
            del model
            t.at("holder let go")
        opt.zero_grad()
        head(torch.relu(body(torch.randn(4, 3)))).pow(2).mean().backward()
        opt.step()
        t.at(f"step {i}")
    del body, head, opt
    t.at("parts let go")


def an_average(t: Told) -> None:
    model = t.watch(nn.Linear(3, 1), "model")
    average = t.watch(copy.deepcopy(model).eval(), "average")
    opt = t.watch(torch.optim.SGD(model.parameters(), lr=0.1), "optimizer")
    for i in range(6):
        opt.zero_grad()
        model(torch.randn(4, 3)).pow(2).mean().backward()
        opt.step()
        with torch.no_grad():
            for a, b in zip(average.parameters(), model.parameters(), strict=True):
                a.lerp_(b, 0.1)
            average(torch.randn(4, 3))
        t.at(f"step {i}")
    del a, b, model
    t.at("model let go")
    del average, opt
    t.at("average let go")


def compiled(t: Told) -> None:
    model = t.watch(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), "model")
    opt = t.watch(torch.optim.SGD(model.parameters(), lr=0.1), "optimizer")
    fast = torch.compile(model, backend="aot_eager")
    for i in range(8):
        opt.zero_grad()
        t.watch(fast(torch.randn(4, 3)).pow(2).mean(), f"loss {i}").backward()
        opt.step()
        t.at(f"step {i}")
    del model, fast, opt
    gc.collect()
    t.at("collected")


PROGRAMS: dict[str, Callable[[Told], None]] = {
    "plain": plain,
    "one step": lambda t: plain(t, steps=1),
    "many steps": lambda t: plain(t, steps=40, evaluates=True),
    "the optimizer dies first": lambda t: plain(t, optimizer_first=True),
    "evaluation with gradients": lambda t: plain(t, evaluates=True),
    **{
        each.__name__: each
        for each in (
            hooks_that_hold_the_model, loader_and_schedule, by_hand, gan, steps_within_backward, closures,
            a_pass_raises, a_layer_is_replaced, its_holder_dies_first, an_average, compiled,
        )
    },
}  # fmt: skip


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Have cycles collected where a program does it itself, and nowhere else."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def deaths(program: Callable[[Told], None]) -> Log:
    told = Told()
    torch.manual_seed(0)
    for _ in range(2):
        program(told)
    told.at("end")
    return list(told.log)


@pytest.mark.parametrize("options", SESSIONS.values(), ids=SESSIONS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_everything_dies_when_it_would_die_bare(program: Callable[[Told], None], options: dict[str, Any]) -> None:
    deaths(program)  # torch makes some things once
    with no_collector():
        bare = deaths(program)
        gc.collect()
        with NeuralDbg(discover=True, **options) as dbg:
            watched = deaths(program)

    assert watched == bare
    assert any(not line.startswith("--") for line in bare)
    assert dbg.diagnose().run["coverage"]["errors"] == 0


@pytest.mark.skipif(not malloc.TELLS, reason="glibc tells how much malloc has given out")
@pytest.mark.parametrize("options", SESSIONS.values(), ids=SESSIONS)
def test_a_search_over_40_models_holds_one(options: dict[str, Any]) -> None:
    """Each has 1 MB of weights, and its optimizer twice as much."""
    alive = weakref.WeakSet[nn.Module]()
    counts, sizes = [], []
    with no_collector(), NeuralDbg(discover=True, **options) as dbg:
        for i in range(40):
            torch.manual_seed(i)
            model = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 64))
            alive.add(model)
            opt = torch.optim.Adam(model.parameters(), lr=10.0 ** -(i % 4))
            for _ in range(6):
                x = torch.randn(8, 64)
                opt.zero_grad()
                (model(x) - x).pow(2).mean().backward()
                opt.step()
            counts.append(len(alive))
            sizes.append(malloc.given_out() / 2**20)
            del model, opt

    assert counts == [1] * 40
    assert sizes[-1] - sizes[19] < 20, sizes  # of twenty models and their optimizers: 60
    coverage = dbg.diagnose().run["coverage"]
    assert coverage["errors"] == 0
    assert coverage["never_fired"] == []
    assert len(dbg.record().layout.layers) >= 3 * 30
    assert dbg.steps == 240


def test_what_was_learnt_of_a_model_that_is_gone_stays() -> None:
    """Its head is in no optimizer, and another layer is never called: known after it died."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.spare = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.relu(self.body(x)))

    def train(params: Callable[[Net], Any]) -> None:
        model = Net()
        opt = torch.optim.SGD(params(model), lr=0.1)
        for _ in range(6):
            model.zero_grad()
            model(torch.randn(4, 3)).pow(2).mean().backward()
            opt.step()

    with NeuralDbg(discover=True) as dbg:
        train(lambda model: model.body.parameters())
        train(lambda model: model.parameters())

    facts = [fact.value for fact in dbg.record().facts if fact.key == "params"]
    assert facts[-1]["total"] == 12
    assert facts[-1]["not_in_optimizer"] == ["model.head.weight", "model.head.bias"] or facts[-1][
        "not_in_optimizer"
    ] == ["head.weight", "head.bias"]
    assert sum("spare" in name for name in facts[-1]["uncalled"]) == 4
    assert sum("spare" in name for name in dbg.diagnose().run["coverage"]["never_fired"]) == 2


def test_an_identity_that_is_used_again_is_another_parameter() -> None:
    """Models of a search often get the memory of the one before, and with it its identities: no stream, learning rate
    or plan of the old one may be taken for theirs.
    """
    with no_collector(), NeuralDbg(discover=True) as dbg:
        ids = []
        for i in range(6):
            model = nn.Linear(3, 1)
            opt = torch.optim.SGD(model.parameters(), lr=0.1 * (i + 1))
            ids.append(id(model.weight))
            for _ in range(4):
                opt.zero_grad()
                model(torch.randn(4, 3)).pow(2).mean().backward()
                opt.step()
            del model, opt

    record = dbg.record()
    if len(set(ids)) == len(ids):
        pytest.skip("no identity was used twice")
    assert len({fact.value["stream"] for fact in record.facts if fact.key == "optimizer"}) == 6
    assert [fact.value["not_in_optimizer"] for fact in record.facts if fact.key == "params"][-1] == []
