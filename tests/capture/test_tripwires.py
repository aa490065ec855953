"""No method, property or operator of the program's classes is called: every one of them counts, and draws a number.

Counts and states of the generators are compared with those of the bare run, which torch itself gives rise to.
"""

from __future__ import annotations

import contextlib
import io
import random
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.capture.counting_classes import CALLS, trip, wired
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from neuraldbg import NeuralDbg

STEPS = 36
"""Both moments of the experiments, and light steps."""
WATCHERS: dict[str, Callable[[nn.Module], Any]] = {
    "default": NeuralDbg,
    "full": lambda model: NeuralDbg(model, overhead=None),
    "discover": lambda model: NeuralDbg(discover=True, overhead=None),
    "snapshots": lambda model: NeuralDbg(model, overhead=None, snapshots=["*"]),
}

Dict, List, Tuple = wired(dict), wired(list), wired(tuple)
Ordered, User = wired(OrderedDict), wired(UserDict)
Object, Number = wired(object), wired(float)
Linear, Norm, Relu, Dropout = wired(nn.Linear), wired(nn.BatchNorm1d), wired(nn.ReLU), wired(nn.Dropout)
Sequence, Modules, Lstm = wired(nn.Sequential), wired(nn.ModuleList), wired(nn.LSTM)
Embedding, Base, Loss = wired(nn.Embedding), wired(nn.Module), wired(nn.CrossEntropyLoss)
Hears = wired(nn.Module, attributes=True)
Adam, Sgd = wired(torch.optim.Adam), wired(torch.optim.SGD)
StepLR, Plateau = wired(torch.optim.lr_scheduler.StepLR), wired(torch.optim.lr_scheduler.ReduceLROnPlateau)
Data, Loader, Sampler, Scaler = (
    wired(TensorDataset),
    wired(DataLoader),
    wired(RandomSampler),
    wired(torch.amp.GradScaler),
)


@dataclass
class Record:
    """A dataclass whose fields are told by properties as well."""

    logits: Tensor
    hidden: Any = None

    def __iter__(self) -> Iterator[Any]:
        trip("Record.__iter__")
        return iter(())

    def __getattr__(self, name: str) -> Any:
        trip("Record.__getattr__")
        raise AttributeError(name)

    @property
    def loss(self) -> Tensor:
        trip("Record.loss")
        return self.logits.sum()


class Rows(Mapping[str, Tensor]):
    """A mapping that is no dict: only its own methods can tell what is in it."""

    def __init__(self, held: dict[str, Tensor]) -> None:
        self.held = held

    def __getitem__(self, key: str) -> Tensor:
        trip("Rows.__getitem__")
        return self.held[key]

    def __iter__(self) -> Iterator[str]:
        trip("Rows.__iter__")
        return iter(self.held)

    def __len__(self) -> int:
        trip("Rows.__len__")
        return len(self.held)


class Key(str):
    __slots__ = ()

    def __hash__(self) -> int:
        trip("Key.__hash__")
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        trip("Key.__eq__")
        return str.__eq__(self, str(other))

    def __str__(self) -> str:
        trip("Key.__str__")
        return str.__str__(self)


def features() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 6), torch.randint(0, 3, (8,))


def step(loss: Tensor, opt: torch.optim.Optimizer) -> None:
    opt.zero_grad()
    loss.backward()
    opt.step()


def containers(watch: Any, given: Callable[[Tensor], Any], x_of: Callable[[Any], Tensor], answer: Any) -> list[Tensor]:
    """Train a model that is given its batch in a container, and answers in one."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, batch: Any) -> Any:
            return answer(self.head(F.relu(self.fc(x_of(batch)))))

    model, losses = Net(), []
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model):
        for _ in range(STEPS):
            x, y = features()
            out = model(given(x))
            loss = F.cross_entropy(x_of(out), y)
            step(loss, opt)
            losses.append(loss.detach())
    return [*losses, *model.parameters()]


def first_of_dict(kind: Any) -> tuple[Any, ...]:
    return lambda x: kind(x=x), lambda held: dict.get(held, "x") if isinstance(held, dict) else held.data["x"]


CONTAINERS: dict[str, tuple[Any, Any, Any]] = {
    "dict": (*first_of_dict(Dict), lambda x: Dict(x=x)),
    "OrderedDict": (*first_of_dict(Ordered), lambda x: Ordered(x=x)),
    "list": (lambda x: List([x]), lambda held: list.__getitem__(held, 0), lambda x: List([x])),
    "tuple": (lambda x: Tuple([x]), lambda held: tuple.__getitem__(held, 0), lambda x: Tuple([x])),
    "dataclass": (Record, lambda held: held.logits, Record),
    "mapping": (lambda x: Rows({"x": x}), lambda held: held.held["x"], lambda x: Rows({"x": x})),
    "nested": (
        lambda x: {"a": [Dict(x=x)]},
        lambda held: dict.get(list.__getitem__(held["a"], 0), "x"),
        lambda x: {"a": [Dict(x=x)]},
    ),
    "keys": (lambda x: {Key("x"): x}, lambda held: next(iter(held.values())), lambda x: {Key("x"): x}),
}


def modules(watch: Any) -> list[Tensor]:
    """Train a model of wired modules with a wired optimizer, scheduler, dataset, loader, sampler, scaler and loss."""
    data = Data(torch.randn(64, 6), torch.randint(0, 3, (64,)))
    loader = Loader(data, batch_size=8, sampler=Sampler(data))
    model = Base()
    nn.Module.__setattr__(model, "parts", Modules([Sequence(Linear(6, 8), Norm(8), Relu(), Dropout(0.1))]))
    nn.Module.__setattr__(model, "head", Linear(8, 3))
    nn.Module.__setattr__(model, "config", Object())
    held = nn.Module.__getattr__(model, "_modules") if "_modules" not in vars(model) else vars(model)["_modules"]

    def forward(self: Any, x: Tensor) -> Tensor:
        part = held["parts"]._modules["0"]
        return held["head"](part(x))

    type(model).forward = forward
    params = list(nn.Module.parameters(model))
    opt = Adam(List(params), lr=Number(0.01))
    scheduler, plateau, scaler, loss_of = StepLR(opt, 5), Plateau(opt), Scaler("cpu", enabled=True), Loss()
    losses: list[Tensor] = []
    CALLS.clear()
    with watch(model):
        while len(losses) < STEPS:
            for x, y in loader:
                loss = loss_of(model(x), y)
                opt.zero_grad()
                scaler.scale(loss).backward()
                scaler.unscale_(opt)
                torch.nn.utils.clip_grad_norm_(List(params), Number(1.0))
                scaler.step(opt)
                scaler.update()
                scheduler.step()
                losses.append(loss.detach())
            plateau.step(losses[-1])
            nn.Module.train(model, False)
            with torch.no_grad():
                loss_of(model(x), y)
            nn.Module.train(model, True)
    return [*losses, *params]


def hearing(watch: Any) -> list[Tensor]:
    """Train a model whose class hears of every attribute that is read of it."""
    inner = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    model = Hears()
    type(model).forward = lambda self, x: inner(x)
    vars(model)["_modules"]["inner"] = inner
    params, losses = list(inner.parameters()), []
    opt = torch.optim.SGD(params, lr=0.1)
    CALLS.clear()
    with watch(model):
        for _ in range(STEPS):
            x, y = features()
            loss = F.cross_entropy(model(x), y)
            step(loss, opt)
            losses.append(loss.detach())
    return [*losses, *params]


def checkpoints(watch: Any) -> list[Tensor]:
    """Load wired containers with optimizers and weights, in the middle of a training."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    opt, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    with watch(model):
        for _ in range(8):
            x, y = features()
            loss = F.cross_entropy(model(x), y)
            step(loss, opt)
            losses.append(loss.detach())
        state = {"model": Dict(model.state_dict()), "optimizer": Dict(opt.state_dict()), "epoch": 3}
        file = io.BytesIO()
        torch.save(Dict(state, extra=Object(), whole=List([opt])), file)
        CALLS.clear()
        found = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
        model.load_state_dict(dict(dict.items(dict.get(found, "model"))))
        for _ in range(8):
            x, y = features()
            step(F.cross_entropy(model(x), y), opt)
    return [*losses, *model.parameters()]


class Marked(Tensor):
    """A tensor whose class hears of every operation."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        trip("Marked.__torch_function__")
        return super().__torch_function__(func, types, args, kwargs or {})


class Listed(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        trip("TorchFunctionMode")
        return func(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        trip("TorchDispatchMode")
        return func(*args, **(kwargs or {}))


def plain(watch: Any, batch: Callable[[], tuple[Tensor, Tensor]] = features, mode: Any = None) -> list[Tensor]:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    opt, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    with watch(model), mode if mode is not None else contextlib.nullcontext():
        for _ in range(STEPS):
            x, y = batch()
            loss = F.cross_entropy(model(x), y)
            step(loss, opt)
            losses.append(loss.detach())
    return [*losses, *model.parameters()]


def marked() -> tuple[Tensor, Tensor]:
    x, y = features()
    return x.as_subclass(Marked), y


def run(program: Callable[[Any], list[Tensor]], watch: Any) -> tuple[list[Tensor], dict[str, int], Any, Tensor]:
    CALLS.clear()
    torch.manual_seed(0)
    random.seed(0)
    results = program(watch)
    return results, dict(CALLS), random.getstate(), torch.get_rng_state()


PROGRAMS: dict[str, Callable[[Any], list[Tensor]]] = {
    "modules": modules,
    "hearing": hearing,
    "checkpoints": checkpoints,
    "a TorchFunctionMode": lambda watch: plain(watch, mode=Listed()),
    "a TorchDispatchMode": lambda watch: plain(watch, mode=Dispatched()),
    "a __torch_function__": lambda watch: plain(watch, batch=marked),
    **{
        f"a batch in a {name}": lambda watch, three=three: containers(watch, *three)
        for name, three in CONTAINERS.items()
    },
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_of_the_program_is_called(name: str) -> None:
    program = PROGRAMS[name]
    run(program, lambda model: contextlib.nullcontext())  # what is imported on the way may draw numbers
    bare, calls, python, generator = run(program, lambda model: contextlib.nullcontext())
    for how, watch in WATCHERS.items():
        results, now, python_now, generator_now = run(program, watch)
        beyond = {call: now.get(call, 0) - calls.get(call, 0) for call in {*now, *calls}}
        beyond = {call: count for call, count in beyond.items() if count}
        assert beyond == {}, how
        assert python == python_now, how
        assert torch.equal(generator, generator_now), how
        for one, other in zip(bare, results, strict=True):
            assert torch.equal(one, other), how
