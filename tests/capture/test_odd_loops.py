"""Training loops that are healthy and unusual: nothing breaks, no number is wrong, no fact is false."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import capture_run
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.checkpoint import checkpoint


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


X, Y = torch.randn(16, 4, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 2


def grad_norm(model: nn.Module) -> float:
    return float(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm())


def test_a_generator_of_losses_is_still_differentiated() -> None:
    model = net()

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.autograd.backward(loss for loss in [F.cross_entropy(model(X), Y)])
        assert grad_norm(model) > 0
        opt.step()

    assert capture_run(program, model).scalars("grad_norm")[0] > 0


def test_an_own_argument_of_step_is_no_closure() -> None:
    class Own(torch.optim.SGD):
        def step(self, epoch: int) -> None:  # type: ignore[override]
            assert epoch == 3
            super().step()

    model = net()

    def program() -> None:
        opt = Own(model.parameters(), lr=0.1)
        F.cross_entropy(model(X), Y).backward()
        opt.step(3)

    assert len(capture_run(program, model).steps) == 1


def test_gradients_cleared_between_two_backwards_are_not_stale() -> None:
    """Adversarial training: the attack's backward fills the gradients too, and its loss is not the step's."""
    model = net()
    losses = []

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            x = X.clone().requires_grad_()
            F.cross_entropy(model(x), Y).backward()
            opt.zero_grad()
            loss = F.cross_entropy(model((x + 0.5 * x.grad.sign()).detach()), Y)
            loss.backward()
            losses.append(loss.item())
            opt.step()

    seen = capture_run(program, model)
    assert all(share == 0.0 for share in seen.scalars("stale_grad")[1:])
    assert seen.scalars("loss")[1:] == pytest.approx(losses[1:])


def test_gradients_that_are_set_by_hand_are_not_stale() -> None:
    """Task weights that step on a gradient set by hand: what the loss left in them is cleared before that."""
    model, weights = net(), torch.zeros(2, requires_grad=True)

    def program() -> None:
        one, two = torch.optim.SGD(model.parameters(), lr=0.01), torch.optim.SGD([weights], lr=0.01)
        for _ in range(6):
            one.zero_grad()
            out = model(X)
            losses = torch.stack([F.cross_entropy(out, Y), out.square().mean()])
            (losses * weights.softmax(0)).sum().backward()
            one.step()
            with torch.no_grad():
                change = losses - F.cross_entropy(model(X), Y)
            two.zero_grad()
            weights.grad = change.detach()
            two.step()

    shares = [share for share in capture_run(program).scalars("stale_grad") if not math.isnan(share)]
    assert len(shares) >= 8
    assert max(shares) == 0.0


def test_a_gan_is_not_stale_and_a_forgotten_zero_grad_is() -> None:
    a, b = net(), net()

    def program(*, forget: bool) -> None:
        one, two = torch.optim.SGD(a.parameters(), lr=0.01), torch.optim.SGD(b.parameters(), lr=0.01)
        for _ in range(4):
            if not forget:
                one.zero_grad()
            (b(X).mean() + a(X).mean()).backward()
            one.step()
            if not forget:
                two.zero_grad()
            (a(X).mean() - b(X).square().mean()).backward()
            two.step()

    assert max(capture_run(lambda: program(forget=False)).scalars("stale_grad")[2:]) == 0.0
    assert min(capture_run(lambda: program(forget=True)).scalars("stale_grad")[2:]) == 1.0


def test_an_optimizer_that_has_not_stepped_yet_counts() -> None:
    a, b = net(), net()

    def program() -> None:
        one = torch.optim.SGD(a.parameters(), lr=0.01)
        later = torch.optim.SGD(b.parameters(), lr=0.01)
        for step in range(5):
            one.zero_grad()
            (a(X).square().mean() + b(X).square().mean()).backward()
            one.step()
            if step == 99:
                later.step()

    assert all(fact["not_in_optimizer"] == [] for fact in capture_run(program).facts("params"))


def test_a_model_that_only_measures_is_no_fault() -> None:
    """A perceptual loss: gradients flow through it, nobody trains it, and it stays in eval mode."""
    model = net()
    judge = nn.Sequential(nn.Linear(2, 6), nn.Dropout(0.5), nn.Linear(6, 3)).eval()

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            opt.zero_grad()
            judge(model(X)).square().mean().backward()
            judge.zero_grad()
            opt.step()

    seen = capture_run(program)
    assert seen.facts("params")[-1]["not_in_optimizer"] == []
    assert seen.scalars("eval_layers")[-1] == 0


def test_a_replaced_layer_is_followed() -> None:
    model = net()

    def program() -> None:
        model(X)
        model[2] = nn.Linear(8, 5)
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            opt.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            opt.step()

    seen = capture_run(program, model)
    last = seen.facts("params")[-1]
    assert last["no_grad"] == last["uncalled"] == last["not_in_optimizer"] == []
    assert seen.seen("param_grad", "2", name="weight")


def test_a_transform_in_the_step_costs_no_step() -> None:
    model = net()

    def loss(p: dict[str, Any], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(model, p, (x[None],)), y[None])

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(dict(model.named_parameters()), X, Y)
            F.cross_entropy(model(X), Y).backward()
            opt.step()

    assert len(capture_run(program, model).steps) == 3


def test_an_optimizer_without_a_learning_rate() -> None:
    model = net()

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        opt.param_groups[0]["lr"] = None
        opt.step = lambda: None  # type: ignore[method-assign]
        F.cross_entropy(model(X), Y).backward()
        for hook in _global_optimizer_pre_hooks.values():
            hook(opt, (opt,), {})
        for hook in _global_optimizer_post_hooks.values():
            hook(opt, (opt,), {})

    seen = capture_run(program, model)
    assert seen.scalars("grad_norm")[0] > 0
    assert "lr" not in seen.steps[0].scalars


def test_a_sum_of_scaled_losses_is_unscaled() -> None:
    model = net()
    losses = []

    def program() -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        one, two = F.cross_entropy(model(X), Y), model(X).square().mean()
        losses.append(float((one + two).detach()))
        (scaler.scale(one) + scaler.scale(two)).backward()
        scaler.step(opt)

    assert capture_run(program, model).scalars("loss") == pytest.approx(losses, rel=1e-5)


def test_a_checkpointed_function_runs_as_often_as_without_us() -> None:
    model, runs = net(), []

    def inner(h: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return torch.log(h.square() + 1) / (h + 10).sqrt()

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad()
            checkpoint(inner, model(X), use_reentrant=False).mean().backward()
            opt.step()

    capture_run(program, model)
    assert len(runs) == 8


def test_norms_of_an_embedding_are_exact_though_it_is_large() -> None:
    model = nn.Sequential(nn.Embedding(20_000, 16), nn.Flatten(), nn.Linear(16 * 4, 2))
    ids = torch.randint(50, 400, (32, 4))
    before = model[0].weight.detach().clone()
    true = []

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.5)
        F.cross_entropy(model(ids), torch.arange(32) % 2).backward()
        true.append(float(model[0].weight.grad.norm()))
        opt.step()
        true.append(float((model[0].weight.detach() - before).norm()))

    seen = capture_run(program, model)
    assert seen.norm("param_grad", "0", name="weight") == pytest.approx(true[0], rel=1e-4)
    assert seen.norm("update", "0", name="weight") == pytest.approx(true[1], rel=1e-4)


def test_one_nan_in_a_large_gradient_is_seen() -> None:
    model = nn.Linear(300, 300)

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.5)
        model(torch.randn(4, 300)).square().mean().backward()
        model.weight.grad[17, 231] = float("nan")
        opt.step()

    seen = capture_run(program, model)
    assert seen.stat("param_grad", "Linear", "nonfinite", name="weight") == 1
    assert seen.stat("param_grad", "Linear", "count", name="weight") == 90_000


def test_a_tool_that_patched_after_us_finds_us_silent_after_the_end() -> None:
    model = net()
    kept: list[Any] = []

    def program() -> None:
        ours = nn.Module.__call__

        def theirs(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return ours(module, *args, **kwargs)

        nn.Module.__call__ = theirs
        kept.append(nn.Module.__call__)
        model(X).sum().backward()

    original = nn.Module.__call__
    try:
        seen = capture_run(program)
        assert nn.Module.__call__ is kept[0]
        other = net()
        other(X).sum().backward()
        assert not any(module._forward_hooks for module in other.modules())
        assert len(seen.capture.models.found) == 1
    finally:
        nn.Module.__call__ = original


@pytest.mark.parametrize("strict", [False, True])
def test_scripting_and_exporting_a_watched_model(strict: bool) -> None:
    model = net()
    made: list[Any] = []

    def program() -> None:
        made.append(torch.jit.script(model))
        made.append(torch.jit.script(copy.deepcopy(model)))
        made.append(torch.export.export(model, (X,), strict=strict))

    seen = capture_run(program, model)
    assert torch.equal(made[0](X), model(X))
    assert "neuraldbg" not in str(made[2])
    assert seen.capture.coverage()["errors"] == 0


def test_a_loop_without_an_optimizer_keeps_no_more_and_more() -> None:
    model = net()
    held = []

    def program() -> None:
        for step in range(300):
            model.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(0.1 * p.grad)
            if step in (150, 299):
                capture = watched.models
                held.append((len(capture.passes), len(capture.hooks.table.sites)))

    from neuraldbg.capture import Capture
    from neuraldbg.config import CaptureSettings

    capture = Capture(CaptureSettings(), lambda *_: None)
    watched = capture
    capture.start()
    try:
        capture.models.watch(model)
        program()
    finally:
        capture.stop()
    assert held[0][0] == held[1][0] <= 64
    assert held[1][1] <= 1024


def test_many_small_terms_are_read_in_time_linear_in_them() -> None:
    model = nn.Linear(4, 1)

    def program() -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        out = model(X)
        sum((out[i % 16] - float(i)) ** 2 for i in range(3000)).sum().backward()
        opt.step()

    seen = capture_run(program, model)
    assert len(seen.facts("loss")[0]["terms"]) <= 8
    assert seen.scalars("overhead")[0] < 5.0


def test_an_optimizer_that_calls_its_parent_takes_one_step() -> None:
    class Centred(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None and p.dim() > 1:
                        p.grad -= p.grad.mean(1, keepdim=True)
            return super().step(closure)

    model = nn.Linear(4, 2)
    torch.optim.SGD(model.parameters(), 0.1)  # torch hooks the parent's step once one of it was made
    optimizer = Centred(model.parameters(), 0.1)

    def program() -> None:
        for _ in range(7):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()

    assert len(capture_run(program, model).steps) == 7
