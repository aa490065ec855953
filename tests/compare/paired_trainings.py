"""Real trainings that differ in one known thing, so that it is known where they must part."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.nouns import RunRecord

STEPS = 16
torch.set_num_threads(1)  # these models are tiny: threads would only wait for each other


class Net(nn.Module):
    """Three linear layers with a dropout; each may be asked to go wrong."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.act = nn.Tanh()
        self.drop = nn.Dropout(p)
        self.fc2 = nn.Linear(16, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.fc2(self.drop(self.act(self.fc1(x))))))


def sequence(*more: tuple[int, nn.Module]) -> nn.Module:
    """Return a sequence of the same layers by number, with others put in at places."""
    layers: list[nn.Module] = [nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)]
    for at, layer in more:
        layers.insert(at, layer)
    return nn.Sequential(*layers)


def named(*names: str) -> nn.Module:
    """Return the sequence with names in place of numbers."""
    return nn.Sequential(OrderedDict(zip(names, sequence(), strict=True)))


@dataclass(frozen=True)
class Plan:
    """What a training does; each field is one thing that may be changed."""

    make: Callable[[], nn.Module] = Net
    steps: int = STEPS
    seed: int = 0
    order: int = 1
    """Seed of the order of the data."""
    lr: float = 0.1
    batch: int = 16
    drop_at: int | None = None
    """A scheduler divides the learning rate by ten from this step on."""
    ready: Callable[[nn.Module], Any] = lambda model: None
    """Changes the model before it is trained."""
    dice: int = 2
    """Seed of dropout."""
    compiled: str = ""
    """A back end of torch.compile."""
    autocast: bool = False
    wide: bool = False
    """Train in float64."""
    target: Callable[[Tensor, int], Tensor] = lambda y, step: y
    """Changes the labels of a step."""
    scale: float = 1.0
    """Of the loss."""
    overhead: float | None = None
    momentum: float = 0.0
    before: Callable[[nn.Module, int], Any] = lambda model, step: None
    """Is called at the beginning of each step."""
    settings: Any = None
    profile: bool | None = None


def train(plan: Plan, out: Any = None) -> RunRecord:
    """Train, watched, and return what was recorded."""
    torch.manual_seed(3)
    x, labels = torch.randn(64, 8), torch.randint(3, (64,))
    torch.manual_seed(plan.seed)
    model = plan.make()
    plan.ready(model)
    if plan.wide:
        model, x = model.double(), x.double()
    called: Any = torch.compile(model, backend=plan.compiled) if plan.compiled else model
    opt = torch.optim.SGD(model.parameters(), lr=plan.lr, momentum=plan.momentum)
    ends = [plan.drop_at] if plan.drop_at is not None else [10_000]
    schedule = torch.optim.lr_scheduler.MultiStepLR(opt, ends, gamma=0.1)
    order = torch.Generator().manual_seed(plan.order)
    torch.manual_seed(plan.dice)
    with NeuralDbg(model, overhead=plan.overhead, out=out, settings=plan.settings, profile=plan.profile) as dbg:
        for step in range(plan.steps):
            plan.before(model, step)
            at = torch.randperm(len(x), generator=order)[: plan.batch]
            opt.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=plan.autocast):
                loss = F.cross_entropy(called(x[at]), plan.target(labels[at], step)) * plan.scale
            loss.backward()
            opt.step()
            schedule.step()
    return dbg.record()


def changed(out: Any = None, **what: Any) -> RunRecord:
    """Train with something changed."""
    return train(replace(Plan(), **what), out)
