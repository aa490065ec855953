"""Trainings that use the less trodden parts of torch: each trains and returns (model, losses, steps)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from tests.session.seeded_trainings import ConvNet, Mlp, vectors
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    Result = tuple[nn.Module, list[Tensor], int]

N = 5


def loop(
    watch: Any, model: nn.Module, make: Any = None, batch: Any = vectors, loss_of: Any = F.cross_entropy
) -> Result:
    """An ordinary loop around an unusual model or optimizer."""
    make = make or (lambda params: torch.optim.SGD(params, lr=0.05))
    losses = []
    with watch(model):
        optimizer = None
        for _ in range(N):
            x, y = batch()
            out = model(x)
            optimizer = optimizer or make(model.parameters())
            optimizer.zero_grad()
            loss = loss_of(out, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
    return model, losses, N


def spectral_norm(watch: Any) -> Result:
    """A parametrized weight is computed anew, and its state changed, by whoever looks at it."""
    model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 16)), nn.ReLU(), nn.Linear(16, 3))
    return loop(watch, model)


def weight_norm(watch: Any) -> Result:
    return loop(watch, nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 16)), nn.Tanh(), nn.Linear(16, 3)))


def lazy_layers(watch: Any) -> Result:
    """No shape is known before the first call."""
    return loop(watch, nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3)))


def sparse_embedding(watch: Any) -> Result:
    model = nn.Sequential(nn.EmbeddingBag(20, 6, sparse=True))
    return loop(
        watch,
        model,
        lambda params: torch.optim.SparseAdam(list(params), lr=0.1),
        lambda: (torch.randint(20, (8, 4)), torch.randint(6, (8,))),
    )


def complex_weights(watch: Any) -> Result:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 3, dtype=torch.cfloat))

        def forward(self, x: Tensor) -> Tensor:
            return (torch.complex(x, x) @ self.weight).abs()

    return loop(watch, Net())


def scripted(watch: Any) -> Result:
    return loop(watch, torch.jit.script(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))))


def data_parallel(watch: Any) -> Result:
    return loop(watch, nn.DataParallel(Mlp()))


def fused_optimizer(watch: Any) -> Result:
    return loop(watch, Mlp(), lambda params: torch.optim.AdamW(params, lr=1e-2, fused=True))


def packed_sequences(watch: Any) -> Result:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.GRU(8, 6, batch_first=True), nn.Linear(6, 3)

        def forward(self, packed: Any) -> Tensor:
            _, last = self.rnn(packed)
            return self.head(last[-1])

    def batch() -> Any:
        x = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 5, 8), [5, 4, 2, 1], batch_first=True)
        return x, torch.randint(3, (4,))

    return loop(watch, Net(), batch=batch)


def checkpointed(watch: Any) -> Result:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Dropout(0.3))
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(checkpoint(self.body, x, use_reentrant=False))

    return loop(watch, Net())


def vector_loss(watch: Any) -> Result:
    class Each(nn.Module):
        def forward(self, out: Tensor, y: Tensor) -> Any:
            loss = F.cross_entropy(out, y, reduction="none")
            weight = torch.rand_like(loss)
            loss.register_hook(lambda grad: None)
            return Weighted(loss, weight)

    class Weighted:
        def __init__(self, loss: Tensor, weight: Tensor) -> None:
            self.loss, self.weight = loss, weight

        def backward(self) -> None:
            self.loss.backward(self.weight)

        def detach(self) -> Tensor:
            return self.loss.detach().mean()

    return loop(watch, Mlp(), loss_of=Each())


def gradient_penalty(watch: Any) -> Result:
    """``autograd.grad`` with a graph of its own, then a backward through it."""
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with watch(model):
        for _ in range(N):
            x = torch.randn(16, 8, requires_grad=True)
            out = model(x)
            (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            loss = out.mean() + 10 * (grad.norm(dim=1) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
    return model, losses, N


def grad_by_hand(watch: Any) -> Result:
    """No ``backward`` at all: ``autograd.grad``, and gradients set by hand."""
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    with watch(model):
        for _ in range(N):
            x, y = vectors()
            loss = F.cross_entropy(model(x), y)
            for p, grad in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
                p.grad = grad
            optimizer.step()
            losses.append(loss.detach().clone())
    return model, losses, N


def two_backwards(watch: Any) -> Result:
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    with watch(model):
        for _ in range(N):
            x, y = vectors()
            optimizer.zero_grad()
            out = model(x)
            F.cross_entropy(out, y).backward(retain_graph=True)
            (0.01 * out.square().mean()).backward()
            optimizer.step()
            losses.append(out.detach().clone())
    return model, losses, N


def step_in_backward(watch: Any) -> Result:
    """An optimizer for every parameter, stepped while the backward goes on."""
    model = Mlp()
    each = {p: torch.optim.SGD([p], lr=0.05) for p in model.parameters()}

    def step(p: Tensor) -> None:
        each[p].step()
        each[p].zero_grad()

    handles = [p.register_post_accumulate_grad_hook(step) for p in model.parameters()]
    losses = []
    with watch(model):
        for _ in range(N):
            x, y = vectors()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            losses.append(loss.detach().clone())
    for handle in handles:
        handle.remove()
    return model, losses, N


def q_learning(watch: Any) -> Result:
    """A network, a frozen copy of it that gives the targets, and a copy that averages."""
    online = Mlp()
    target = copy.deepcopy(online).requires_grad_(requires_grad=False).eval()
    average = torch.optim.swa_utils.AveragedModel(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    losses = []
    with watch(online):
        for step in range(N):
            x, a = vectors()
            with torch.no_grad():
                goal = target(x).max(1).values
            loss = F.smooth_l1_loss(online(x).gather(1, a[:, None])[:, 0], goal)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(online.parameters(), 1.0)
            optimizer.step()
            average.update_parameters(online)
            with torch.inference_mode():
                online(x)
            if step == 2:
                target.load_state_dict(online.state_dict())
                copy.deepcopy(online)(x)
            losses.append(loss.detach().clone())
    return online, losses, N


def new_head(watch: Any) -> Result:
    """A layer that is replaced between two phases, each with an optimizer of its own and a schedule."""
    model = Mlp()
    losses = []
    with watch(model):
        for phase in range(2):
            if phase:
                model.fc2 = nn.Linear(16, 3)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=N)
            for _ in range(N):
                x, y = vectors()
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.detach().clone())
    return model, losses, 2 * N


def under(enter: Callable[[], Any], program: Callable[[Any], Result], name: str) -> Callable[[Any], Result]:
    def run(watch: Any) -> Result:
        with enter():
            return program(watch)

    run.__name__ = name
    return run


class Setting:
    """A global setting of torch, for the time of a training."""

    def __init__(self, put: Callable[[Any], None], on: Any, off: Any) -> None:
        self.put, self.on, self.off = put, on, off

    def __enter__(self) -> None:
        self.put(self.on)

    def __exit__(self, *_: object) -> None:
        self.put(self.off)


def conv(watch: Any) -> Result:
    return loop(watch, ConvNet(), batch=lambda: (torch.randn(4, 1, 8, 8), torch.randint(3, (4,))))


def two_optimizers(watch: Any) -> Result:
    """A generator and a discriminator, each with an optimizer of its own."""
    model = nn.ModuleDict({"made": nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True)), "judge": nn.Linear(8, 1)})
    losses = []
    with watch(model):
        ours, theirs = (torch.optim.Adam(model[name].parameters(), lr=0.01) for name in ("judge", "made"))
        for _ in range(N):
            fake = model["made"](torch.randn(16, 4))
            for optimizer, shown, sign in ((ours, fake.detach(), 1), (theirs, fake, -1)):
                optimizer.zero_grad()
                loss = F.softplus(sign * model["judge"](shown)).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach().clone())
    return model, losses, 2 * N


def compiled_part(watch: Any) -> Result:
    """A model of which a part is compiled."""
    model = Mlp()
    model.fc1 = torch.compile(model.fc1, backend="aot_eager")  # type: ignore[assignment]
    return loop(watch, model)


def compiled_whole(watch: Any) -> Result:
    model = Mlp()
    _, losses, steps = loop(lambda _: watch(model), torch.compile(model, backend="aot_eager"))
    return model, losses, steps


ODDITIES = {
    program.__name__: program
    for program in (
        spectral_norm, weight_norm, lazy_layers, sparse_embedding, complex_weights, scripted, data_parallel,
        fused_optimizer, packed_sequences, checkpointed, vector_loss, gradient_penalty,
        grad_by_hand, two_backwards,
        step_in_backward, q_learning, new_head,
        under(lambda: Setting(torch.set_default_dtype, torch.float64, torch.float32), conv, "double_by_default"),
        under(lambda: Setting(torch.use_deterministic_algorithms, True, False), conv, "deterministic_algorithms"),
        under(lambda: torch.autograd.detect_anomaly(check_nan=True), conv, "anomaly_mode"),
        under(lambda: torch.device("cpu"), conv, "device_mode"),
        under(torch.autograd.graph.save_on_cpu, conv, "saved_tensors_offloaded"),
    )
}  # fmt: skip

HOOKED = {**ODDITIES, **{program.__name__: program for program in (two_optimizers, compiled_part, compiled_whole)}}
"""Those that are trained with hooks, too."""
