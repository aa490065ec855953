"""``halt=True`` stops before the bad step is applied: the weights are those of the step before, to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.session.seeded_trainings import Mlp, vectors
from torch import Tensor, nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg, TrainingHalted, TriggerEngine


def weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


class Training:
    """A loop that notes the weights after every applied step."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Any) -> None:
        self.model, self.optimizer, self.loss_of = model, optimizer, loss_of
        self.good = weights(model)
        self.applied = 0

    def run(self, steps: int) -> None:
        for step in range(steps):
            self.optimizer.zero_grad()
            self.loss_of(step).backward()
            self.optimizer.step()
            self.good = weights(self.model)
            self.applied += 1

    def halted(self, steps: int = 200, **options: Any) -> TrainingHalted:
        with pytest.raises(TrainingHalted) as caught, NeuralDbg(self.model, halt=True, **options) as dbg:
            self.run(steps)
        error = caught.value
        assert error.step == self.applied
        assert all(torch.equal(a, b) for a, b in zip(weights(self.model), self.good, strict=True))
        assert all(w.isfinite().all() for w in self.good)
        assert error.diagnosis is not None
        assert error.diagnosis.verdict == "failing"
        assert error.diagnosis.hypotheses or error.diagnosis.events
        assert error.reason in str(error)
        assert dbg.diagnose().run["outcome"]["kind"] == "halted"
        assert dbg.record().history.applied.tolist() == [True] * self.applied + [False]
        return error


def make(seed: int = 0) -> Mlp:
    torch.manual_seed(seed)
    return Mlp()


def test_a_loss_that_is_not_a_number() -> None:
    model = make()

    def loss_of(step: int) -> Tensor:
        x, y = vectors()
        return F.cross_entropy(model(x if step != 6 else x * float("nan")), y)

    error = Training(model, torch.optim.Adam(model.parameters()), loss_of).halted()
    assert error.step == 6
    assert error.reason == "the loss is nan"


def test_one_gradient_that_is_not_a_number_while_the_loss_is_good() -> None:
    model = make()

    def loss_of(step: int) -> Tensor:
        x, y = vectors()
        out = model(x)
        safe = torch.where(out > -1e9, out, torch.zeros_like(out))
        bad = (out.sum() * 0).sqrt() if step == 4 else out.sum() * 0  # sqrt'(0) * 0 = NaN
        return F.cross_entropy(safe, y) + bad

    error = Training(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_of).halted()
    assert error.step == 4
    assert "not finite" in error.reason


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_a_learning_rate_far_too_high(optimizer: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    x = torch.randn(64, 8)
    y = x.sum(1, keepdim=True)
    Training(model, optimizer(model.parameters(), lr=10.0), lambda step: F.mse_loss(model(x), y)).halted()


def test_a_closure_is_halted_inside_the_optimizer() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=5)
    x = torch.randn(32, 8)
    y = x.sum(1, keepdim=True)
    calls, good = [], []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y) * (float("nan") if len(good) == 3 else 1.0)
        loss.backward()
        calls.append(float(loss.detach()))
        return loss

    with pytest.raises(TrainingHalted) as caught, NeuralDbg(model, halt=True):  # noqa: PT012
        while len(good) < 10:
            before = weights(model)
            optimizer.step(closure)
            good.append(before)
    assert caught.value.step == len(good) == 3
    assert all(torch.equal(a, b) for a, b in zip(weights(model), before, strict=True))


def test_a_custom_engine_brings_its_own_thresholds() -> None:
    model = make()

    def loss_of(step: int) -> Tensor:
        x, y = vectors()
        return F.cross_entropy(model(x), y)

    training = Training(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_of)
    with pytest.raises(TrainingHalted, match="above 1e-06"), NeuralDbg(model, halt=TriggerEngine(grad_threshold=1e-6)):
        training.run(5)
    assert training.applied == 0


def test_a_gradient_scaler_may_overflow_while_it_looks_for_its_scale() -> None:
    """It skips those steps by itself: the optimizer is never asked, so there is nothing to halt."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, backoff_factor=2.0**-10)
    with NeuralDbg(model, halt=True) as dbg:
        for _ in range(12):
            x, y = vectors()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x).half().float() * 1.0, y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert dbg.diagnose().verdict != "failing"


@pytest.mark.parametrize(
    ("reduction", "lr", "batch"), [("mean", 0.1, 64), ("sum", 0.001, 512)], ids=["mean", "summed over the batch"]
)
def test_a_healthy_run_is_left_alone(reduction: str, lr: float, batch: int) -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with NeuralDbg(model, halt=True) as dbg:
        for _ in range(150):
            x, y = vectors(batch)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y, reduction=reduction).backward()
            optimizer.step()
    assert dbg.steps == 150


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_run_that_converges_to_almost_nothing_is_left_alone(momentum: float) -> None:
    """At a loss of 1e-12 a rise by any factor means nothing."""
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)
    target = torch.randn(8, 1)
    with NeuralDbg(model, halt=True) as dbg:
        for _ in range(400):
            x = torch.randn(16, 8)
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), x @ target)
            loss.backward()
            optimizer.step()
    assert dbg.steps == 400
    assert float(loss.detach()) < 1e-8
    assert dbg.diagnose().verdict == "healthy"


def test_fine_tuning_with_a_loss_that_varies_by_batch_is_left_alone() -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with NeuralDbg(model, halt=True) as dbg:
        for _ in range(200):
            x = torch.randn(4, 8)
            optimizer.zero_grad()
            F.mse_loss(model(x), x.sum(1, keepdim=True) + torch.randn(4, 1)).backward()
            optimizer.step()
    assert dbg.steps == 200


@pytest.mark.parametrize("options", [{}, {"overhead": 0.0001, "settings": {"capture": {"allowance_s": 0.0}}}])
def test_a_halt_on_a_gradient_norm_is_an_event_and_an_answer(options: Any) -> None:
    """Three steps in a row make an explosion, and a halt does not wait for them: all say the same nevertheless."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    hits: list[Any] = []
    with pytest.raises(TrainingHalted) as caught, NeuralDbg(model, halt=True, **options) as dbg:  # noqa: PT012
        dbg.add_breakpoint("exploding_gradients", hits.append)
        for step in range(40):
            x, y = vectors()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if step == 30:
                for p in model.fc2.parameters():
                    assert p.grad is not None
                    p.grad.mul_(1e6)
            optimizer.step()
    assert "gradient norm of layer 'fc2'" in caught.value.reason
    assert [(event.layer, event.first_step) for event in hits] == [("fc2", 30)]
    assert dbg.has_exploding_gradients()
    health = dbg.analyze_gradient_health()
    assert not health.healthy
    assert health.layers["fc2"] == "exploding"
    assert "exploding_gradients" in [event.kind for event in dbg.diagnose().events]
    assert hits[0].details["norm"] > hits[0].details["threshold"]
