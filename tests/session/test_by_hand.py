"""Loops without an optimizer of torch: their steps are seen by the weights, and a healthy one is called healthy."""

from __future__ import annotations

import cProfile
import pstats
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from neuraldbg import NeuralDbg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from torch import Tensor

STEPS, RATE = 60, 0.1


class Task:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(256, 8)
        self.y = (self.x.sum(1) > 0).long()
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        self.losses: list[float] = []

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        at = torch.randint(256, (32,))
        return self.x[at], self.y[at]

    def loss(self) -> torch.Tensor:
        x, y = self.batch()
        loss = F.cross_entropy(self.model(x), y)
        self.losses.append(float(loss.detach()))
        return loss


def under_no_grad(task: Task) -> None:
    task.model.zero_grad()
    task.loss().backward()
    with torch.no_grad():
        for p in task.model.parameters():
            p.sub_(RATE * p.grad)


def new_data(task: Task) -> None:
    task.loss().backward()
    for p in task.model.parameters():
        p.data = p.data - RATE * p.grad
        p.grad = None


def data_in_place(task: Task) -> None:
    """Counted by no version, and the gradient is zero at once."""
    task.loss().backward()
    for p in task.model.parameters():
        p.data.add_(p.grad, alpha=-RATE)
        p.grad.zero_()


def new_parameters(task: Task) -> None:
    task.loss().backward()
    for layer in (task.model[0], task.model[2]):
        for name, p in list(layer.named_parameters()):
            setattr(layer, name, nn.Parameter(p.detach() - RATE * p.grad))


def autograd_grad(task: Task) -> None:
    weights = list(task.model.parameters())
    for p, grad in zip(weights, torch.autograd.grad(task.loss(), weights), strict=True):
        p.data.sub_(RATE * grad)


def in_the_backward(task: Task) -> None:
    def update(p: torch.Tensor) -> None:
        with torch.no_grad():
            p.sub_(RATE * p.grad)
        p.grad = None

    handles = [p.register_post_accumulate_grad_hook(update) for p in task.model.parameters()]
    task.loss().backward()
    for handle in handles:
        handle.remove()


def accumulated(task: Task) -> None:
    task.model.zero_grad()
    for _ in range(4):
        (task.loss() / 4).backward()
    with torch.no_grad():
        for p in task.model.parameters():
            p.sub_(RATE * p.grad)
        task.model(task.x)  # an evaluation in between


LOOPS = [under_no_grad, new_data, data_in_place, new_parameters, autograd_grad, in_the_backward, accumulated]


@pytest.mark.parametrize("options", [{}, {"overhead": None}])
@pytest.mark.parametrize("step", LOOPS)
def test_a_healthy_loop_by_hand(step: Callable[[Task], None], options: dict) -> None:
    bare, task = Task(), Task()
    torch.manual_seed(1)
    for _ in range(STEPS):
        step(bare)
    torch.manual_seed(1)
    with NeuralDbg(discover=True, **options) as dbg:
        for done in range(STEPS):
            step(task)
            assert dbg.steps == done + 1
    assert task.losses == bare.losses
    diagnosis = dbg.diagnose()
    assert diagnosis.verdict == "healthy", diagnosis.summary
    kinds = {event.kind for event in diagnosis.events}
    assert not kinds & {"vanishing_gradients", "unchanged_parameters", "exploding_gradients"}
    run = dbg.record()
    if step is not accumulated:
        assert run.scalar("loss").values.tolist() == pytest.approx(task.losses)


def test_gradients_and_updates_of_steps_by_hand() -> None:
    """Gradients from the second step on, against norms that the loop computes itself."""
    task, norms = Task(), []
    with NeuralDbg(discover=True, overhead=None) as dbg:
        for _ in range(12):
            task.model.zero_grad()
            task.loss().backward()
            grads = [p.grad.flatten().double() for p in task.model[0].parameters()]
            norms.append(float(torch.cat(grads).norm()))
            with torch.no_grad():
                for p in task.model.parameters():
                    p.sub_(RATE * p.grad)
    history = dbg.get_gradient_history("0")
    assert history.steps.tolist() == list(range(1, 12))
    assert history.values.tolist() == pytest.approx(norms[1:], rel=1e-5)
    assert all(0 < ratio < 1 for ratio in dbg.record().scalar("update_ratio").values)


def test_weights_that_a_model_is_called_with() -> None:
    task = Task()
    weights = {name: p.detach().clone().requires_grad_() for name, p in task.model.named_parameters()}
    with NeuralDbg(discover=True) as dbg:
        for _ in range(STEPS):
            x, y = task.batch()
            loss = F.cross_entropy(functional_call(task.model, weights, (x,)), y)
            grads = torch.autograd.grad(loss, list(weights.values()))
            weights = {
                name: (p - RATE * grad).detach().requires_grad_()
                for (name, p), grad in zip(weights.items(), grads, strict=True)
            }
    assert dbg.steps >= STEPS - 1, "the last update is seen by nobody"
    assert dbg.diagnose().verdict == "healthy", dbg.diagnose().summary


def test_a_nan_by_hand_is_found() -> None:
    task = Task()
    with NeuralDbg(discover=True) as dbg:
        for step in range(STEPS):
            task.model.zero_grad()
            (task.loss() * (float("nan") if step == 40 else 1.0)).backward()
            with torch.no_grad():
                for p in task.model.parameters():
                    p.sub_(RATE * p.grad)
    assert dbg.diagnose().verdict == "failing"
    assert "step 40" in dbg.diagnose().summary


def test_what_is_said_where_no_step_is_seen() -> None:
    task = Task()
    other = torch.optim.SGD(nn.Linear(4, 4).parameters(), lr=RATE)
    with NeuralDbg(discover=True) as dbg:
        for _ in range(STEPS):
            task.loss().backward()
    diagnosis = dbg.diagnose()
    assert diagnosis.verdict == "inconclusive"
    assert "60 backward passes" in diagnosis.summary
    assert "no optimizer" in diagnosis.summary, other
    assert "no backward pass" not in diagnosis.summary
    assert "No parameter of a module that is called was changed" in diagnosis.summary


def test_what_moves_weights_before_an_optimizer_of_torch_steps_is_no_step() -> None:
    task = Task()
    optimizer = torch.optim.SGD(task.model.parameters(), lr=RATE)
    with NeuralDbg(discover=True) as dbg:
        task.loss().backward()
        with torch.no_grad():
            task.model[0].weight.mul_(0.5)
        for _ in range(5):
            optimizer.zero_grad()
            task.loss().backward()
            optimizer.step()
    assert dbg.steps == 5


def test_an_optimizer_of_another_model_does_not_hide_steps_by_hand() -> None:
    """One that an earlier cell of a notebook has left, say."""
    other = torch.optim.SGD(nn.Linear(4, 4).parameters(), lr=RATE)
    task = Task()
    with NeuralDbg(discover=True) as dbg:
        for _ in range(12):
            under_no_grad(task)
    assert dbg.steps == 12
    assert not other.state


def test_a_gan_by_hand() -> None:
    """Two models are updated by turns, without an optimizer: a round is one step, and both are followed."""
    torch.manual_seed(0)
    g = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    d = nn.Sequential(nn.Linear(1, 8), nn.LeakyReLU(), nn.Linear(8, 1))

    def update(net: nn.Module) -> None:
        with torch.no_grad():
            for p in net.parameters():
                assert p.grad is not None
                p.sub_(0.05 * p.grad)
        net.zero_grad()

    with NeuralDbg(discover=True, overhead=None, probes=False) as dbg:
        for _ in range(30):
            fake = g(torch.randn(16, 2))
            d.zero_grad()
            (
                nn.functional.softplus(d(fake.detach())) + nn.functional.softplus(-d(torch.randn(16, 1)))
            ).mean().backward()
            update(d)
            g.zero_grad()
            nn.functional.softplus(-d(fake)).mean().backward()
            update(g)

    record = dbg.record()
    assert dbg.steps == 30
    assert record.info.coverage["errors"] == 0
    assert record.info.coverage["backwards"] == 60
    assert record.info.coverage["never_fired"] == []
    assert len(record.info.models) == 2
    updates = [i for i, site in enumerate(record.layout.sites) if site.kind == "update"]
    assert {record.layout.sites[i].module.partition(".")[0] for i in updates} >= {"d"}


def momentum(task: Task) -> None:
    """Hand-written momentum, with the norm of the gradients clipped."""
    task.model.zero_grad()
    task.loss().backward()
    torch.nn.utils.clip_grad_norm_(task.model.parameters(), 0.5)
    with torch.no_grad():
        for p in task.model.parameters():
            kept = task.__dict__.setdefault("kept", {}).setdefault(p, torch.zeros_like(p))
            kept.mul_(0.5).add_(p.grad)
            p.sub_(RATE * kept)


def closure(task: Task) -> None:
    """An optimizer of the program's own that evaluates the loss itself, and again after a trial step."""
    weights = list(task.model.parameters())

    def evaluate() -> torch.Tensor:
        task.model.zero_grad()
        loss = task.loss()
        loss.backward()
        return loss

    evaluate()
    with torch.no_grad():
        for p in weights:
            p.sub_(RATE * p.grad)


def second_pass(task: Task) -> None:
    """An update after each second backward pass."""
    task.model.zero_grad()
    for _ in range(2):
        (task.loss() / 2).backward()
    with torch.no_grad():
        for p in task.model.parameters():
            p.sub_(RATE * p.grad)


def idle_before(task: Task) -> Any:
    return torch.optim.SGD(task.model.parameters(), lr=RATE)


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("step", [data_in_place, autograd_grad, momentum, closure, second_pass])
def test_steps_that_a_program_reports(step: Callable[[Task], None], *, idle: bool) -> None:
    """The weights of a step are those before its update, also beside an optimizer of torch that never steps."""
    bare, task = Task(), Task()
    torch.manual_seed(1)
    for _ in range(20):
        step(bare)
    torch.manual_seed(1)
    unused = idle_before(task) if idle else None
    initial = float(task.model[0].weight.detach().double().norm())
    with NeuralDbg(task.model) as dbg:
        for done in range(20):
            step(task)
            dbg.capture_step(1000 + done)
            assert dbg.steps == done + 1
            if done == 0:
                first = dbg.inspect("0").statistics
    assert unused is None or not unused.state
    assert task.losses == bare.losses
    assert first["param/weight"]["norm"] == pytest.approx(initial, rel=1e-5)
    diagnosis = dbg.diagnose()
    assert diagnosis.verdict == "healthy", diagnosis.summary
    assert not [h.cause for h in diagnosis.hypotheses if h.confidence > 0.2]
    assert "nan" not in diagnosis.to_json().lower()


@pytest.mark.parametrize("reports", [False, True])
def test_weights_gradients_and_updates_of_steps_by_hand(reports: bool) -> None:
    """Against norms that the loop computes itself, from the first step on."""
    task, weights, updates, grads = Task(), [], [], []

    def norm(tensors: Iterable[torch.Tensor]) -> float:
        return float(torch.cat([x.detach().flatten().double() for x in tensors]).norm())

    with NeuralDbg(task.model, overhead=None) as dbg:
        for _ in range(12):
            before = task.model[0].weight.detach().clone()
            momentum(task)
            weights.append(norm([before]) / before.numel() ** 0.5)
            updates.append(norm([task.model[0].weight - before]) / before.numel() ** 0.5)
            grads.append(norm(p.grad for p in task.model.parameters()))
            if reports:
                dbg.capture_step()
    run = dbg.record()
    rows = {kind: run.layout.rows(kind, "0", "weight")[0] for kind in ("param", "update")}
    assert run.series(rows["param"], "rms").values.tolist() == pytest.approx(weights, rel=1e-5)
    assert run.series(rows["update"], "rms").values.tolist() == pytest.approx(updates, rel=1e-4)
    clipped = run.scalar("grad_norm")
    assert clipped.values.tolist() == pytest.approx(grads[int(clipped.steps[0]) :], rel=1e-4)
    assert int(clipped.steps[0]) == (0 if reports else 1), "gradients of the first step are read at its report"


@pytest.mark.parametrize("reports", [False, True])
def test_gradients_that_a_loop_by_hand_never_clears(reports: bool) -> None:
    task = Task()
    with NeuralDbg(task.model) as dbg:
        for _ in range(STEPS):
            task.loss().backward()
            with torch.no_grad():
                for p in task.model.parameters():
                    p.sub_(3.0 * p.grad)
            if reports:
                dbg.capture_step()
    found = dbg.explain_failure()
    assert found[0].cause == "missing_zero_grad", found
    assert "model.zero_grad()" in found[0].remedy.code
    assert "optimizer" not in str(found[0])


def test_nothing_is_said_of_a_learning_rate_that_is_unknown() -> None:
    task = Task()
    with NeuralDbg(task.model) as dbg:
        for _ in range(30):
            task.model.zero_grad()
            F.mse_loss(task.model(task.x), torch.randn(256, 2)).backward()
            with torch.no_grad():
                for p in task.model.parameters():
                    p.sub_(100.0 * p.grad)
            dbg.capture_step()
    found = dbg.explain_failure()
    assert [h.cause for h in found][:1] == ["lr_too_high"], found
    told = f"{found[0].sentence} {dbg.diagnose().summary} {found[0].remedy.text}"
    assert "NaN" not in told.replace("NaN or infinite", "")


@pytest.mark.budget
def test_a_light_step_by_hand_costs_little() -> None:
    """Counted in calls of functions, which no load of the machine changes: there were 1,031."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    x = torch.randn(16, 8)

    def step() -> None:
        model(x).pow(2).mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(0.01 * p.grad)
                p.grad = None

    def calls(n: int) -> float:
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(n):
            step()
        profile.disable()
        return pstats.Stats(profile).total_calls / n  # type: ignore[attr-defined]

    bare = calls(50)
    with NeuralDbg(model, overhead=0.0001, settings={"capture": {"allowance_s": 0.0}}) as dbg:
        for _ in range(140):  # the first steps have facts
            step()
        watched = calls(50)

    assert dbg.steps == 190
    assert watched - bare < 600


def test_what_is_said_of_function_transforms() -> None:
    net = nn.Linear(3, 1)
    params = {name: p.detach() for name, p in net.named_parameters()}
    x = torch.randn(8, 3)

    def loss(params: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(net, params, (x,)).pow(2).mean()

    with NeuralDbg(discover=True) as dbg:
        for _ in range(40):
            grads = torch.func.grad(loss)(params)
            params = {name: p - 0.1 * grads[name] for name, p in params.items()}

    assert "Modules were called 40 times inside of a function transform" in dbg.diagnose().summary
    assert "no backward pass" in dbg.diagnose().summary
