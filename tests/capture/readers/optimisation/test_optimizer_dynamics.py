"""What is read of second moments, of the agreement of gradients, and of losses that meet, against plain torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import capture_run
from torch import Tensor, nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.readers.loss.shared_branches import meetings, terms


def data(n: int = 64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 8, generator=generator)
    return x, x[:, :1] * 2 - x[:, 1:2]


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(self.trunk(x))
        return self.a(h), self.b(h)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    x, y = data()
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()


# --- second moments ----------------------------------------------------------------------------------------------


def test_the_ratio_is_that_of_the_state():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    found = capture_run(lambda: train(model, optimizer, 17), model)
    state, grad = optimizer.state[model[0].weight], model[0].weight.grad
    root = (state["exp_avg_sq"] / (1 - 0.999**17)).sqrt()
    assert found.scalars("second_moment_ratio")[16] == pytest.approx(
        float((grad / root).pow(2).mean().sqrt()), rel=1e-4
    )


def test_epsilon_is_compared_in_the_format_of_the_state():
    torch.manual_seed(0)
    model = nn.Linear(8, 4).half()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    found = capture_run(lambda: _half_step(model, optimizer), model)
    fact = found.facts("optimizer_state")[0]
    assert (fact["dtype"], fact["eps"], fact["eps_kept"]) == ("float16", 1e-8, 0.0)


def _half_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(2, 8).half()).float().sum().backward()
    optimizer.step()


@pytest.mark.parametrize(("eps", "share"), [(1e-8, 0.0), (10.0, 1.0)])
def test_a_large_epsilon_is_above_all_elements(eps, share):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, eps=eps)
    found = capture_run(lambda: train(model, optimizer, 3), model)
    assert found.facts("optimizer_state")[-1]["below_eps"] == share


def test_elements_without_any_gradient_do_not_count():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        model[0].bias[:3] = -100.0  # three dead units: their second moment is exactly 0
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    found = capture_run(lambda: train(model, optimizer, 3), model)
    assert found.facts("optimizer_state")[-1]["below_eps"] == 0.0


def test_an_optimizer_without_second_moments_tells_nothing():
    model = nn.Sequential(nn.Linear(8, 1))
    found = capture_run(lambda: train(model, torch.optim.SGD(model.parameters(), 0.01), 4), model)
    assert not found.facts("optimizer_state")


# --- the course of gradients -------------------------------------------------------------------------------------


def test_plain_descent_goes_along_the_gradient():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 1))
    found = capture_run(lambda: train(model, torch.optim.SGD(model.parameters(), 0.01), 9), model)
    descent = np.array(found.scalars("descent"))
    assert descent[[0, 4, 8]] == pytest.approx(1.0, abs=1e-4)
    assert np.isnan(descent[[1, 2, 3, 5]]).all()
    assert found.scalars("gradient_turn")[4] > 0.99  # a small step: nearly the same gradient


def test_a_heavy_ball_rolls_uphill():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 1))
    found = capture_run(lambda: train(model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.99), 100), model)
    descent = np.array([v for v in found.scalars("descent") if np.isfinite(v)])
    assert (descent < -0.05).mean() > 0.2
    assert (descent > 0.05).mean() > 0.2


def test_the_common_part_of_gradients_is_told_from_noise():
    torch.manual_seed(0)
    shared, noise = _windows(0.0), _windows(30.0)
    assert shared[0]["signal"] > 0.9
    assert abs(noise[0]["signal"]) < 4 * noise[0]["error"]
    assert noise[0]["count"] == 32


def _windows(scatter: float) -> list[dict]:
    model = nn.Sequential(nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    x = torch.ones(1, 8)
    debugger = NeuralDbg(model, optimizer)
    with debugger:
        for _ in range(130):
            optimizer.zero_grad()
            (model(x) * (1 + scatter * torch.randn(1, 4))).sum().backward()
            optimizer.step()
    facts = debugger.record().facts_of("gradient_course")
    return facts[-1].value["windows"]


# --- losses that meet --------------------------------------------------------------------------------------------


def test_terms_and_the_place_where_they_meet():
    model, (x, y) = Heads(), data()
    a, b = model(x)
    found = terms((F.mse_loss(a, y) + 0.5 * F.l1_loss(b, y)).grad_fn)
    assert len(found) == 2
    places = meetings(found)
    assert len(places) == 1
    assert "Relu" in places[0].node.name()
    assert {term for term, _, _ in places[0].ways} == {0, 1}


@pytest.mark.parametrize("parts", [1, 6])
def test_one_term_and_many_terms_are_no_pair(parts):
    model, (x, y) = Heads(), data()
    loss = sum(F.mse_loss(model(x)[0], y) for _ in range(parts))
    assert len(terms(loss.grad_fn)) < 2


def test_cosine_and_norms_are_those_of_separate_gradients():
    torch.manual_seed(0)
    model, (x, y) = Heads(), data(8)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    h = F.relu(model.trunk(x)).detach().requires_grad_()
    one = torch.autograd.grad(F.mse_loss(model.a(h), y), h)[0].flatten()
    other = torch.autograd.grad(3 * F.mse_loss(model.b(h), -y), h)[0].flatten()

    def program() -> None:
        for _ in range(2):
            a, b = model(x)
            optimizer.zero_grad()
            (F.mse_loss(a, y) + 3 * F.mse_loss(b, -y)).backward()
            optimizer.step()

    fact = capture_run(program, model).facts("loss_branches")[0]
    assert fact["cosine"] == pytest.approx(float(F.cosine_similarity(one, other, dim=0)), abs=1e-4)
    assert fact["norms"] == pytest.approx([float(one.norm()), float(other.norm())], rel=1e-3)
    assert (fact["layer"], fact["kind"]) == ("trunk", "terms")


def test_losses_backwarded_in_turn_are_told_from_micro_batches():
    torch.manual_seed(0)
    x, y = data()

    def program(second) -> None:
        model = Heads()
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        for _ in range(3):
            a, b = model(x)
            optimizer.zero_grad()
            F.mse_loss(a, y).backward(retain_graph=True)
            second(a, b).backward()
            optimizer.step()

    opposed = capture_run(lambda: program(lambda a, _: F.l1_loss(a, -y))).facts("loss_branches")
    assert {fact["kind"] for fact in opposed} == {"backwards"}
    assert opposed[-1]["cosine"] < -0.3
    assert not capture_run(lambda: program(lambda a, _: F.mse_loss(a, y))).facts("loss_branches")


def test_training_with_two_losses_stays_bitwise_the_same():
    def trained(*, watched: bool) -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(3)
        model, (x, y) = Heads(), data()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)

        def program() -> None:
            for _ in range(6):
                a, b = model(x)
                optimizer.zero_grad()
                (F.mse_loss(a, y) + F.mse_loss(b, y) * 0.1).backward()
                optimizer.step()

        capture_run(program, model) if watched else program()
        return [p.detach().clone() for p in model.parameters()], torch.random.get_rng_state()

    bare, ours = trained(watched=False), trained(watched=True)
    assert all(torch.equal(a, b) for a, b in zip(bare[0], ours[0], strict=True))
    assert torch.equal(bare[1], ours[1])


def test_norms_of_gradients_are_those_of_all_columns():
    """The units of a code lie in columns: a stride that divides their number would meet one unit only."""
    torch.manual_seed(0)
    code, head = nn.Linear(16, 8), nn.Linear(8, 3)
    model = nn.Sequential(code, head)
    x, y = torch.randn(512, 16), torch.randn(512, 3)
    scale = 10.0 ** -torch.arange(8.0)
    seen = []

    def program() -> None:
        z = code(x)
        terms = F.mse_loss(head(z), y), (z * scale.flip(0)).pow(2).sum()
        seen.extend(float(torch.autograd.grad(one, z, retain_graph=True)[0].norm()) for one in terms)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        sum(terms).backward()
        optimizer.step()

    (fact,) = capture_run(program, model).facts("loss_branches")
    assert fact["norms"][1] / fact["norms"][0] == pytest.approx(seen[1] / seen[0], rel=0.15)


def test_no_hook_is_left_on_a_graph():
    model, (x, y) = Heads(), data()
    kept = []

    def program() -> None:
        a, b = model(x)
        loss = F.mse_loss(a, y) + F.mse_loss(b, y)
        loss.backward(retain_graph=True)
        kept.append(loss)

    found = capture_run(program, model)
    kept[0].backward()  # nobody listens
    assert found.capture is not None
    reader = next(one for one in found.capture.readers.all if type(one).__name__ == "LossBranches")
    assert not reader._handles
    assert not reader._sent


# --- decay on norms ----------------------------------------------------------------------------------------------


def test_the_optimizer_fact_says_which_norms_decay():
    model = nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4), nn.Linear(4, 1))
    x, y = data()

    def program(groups) -> None:
        optimizer = torch.optim.AdamW(groups, 1e-3)
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()

    every = capture_run(lambda: program(model.parameters()), model).facts("optimizer")[0]
    assert every["decayed_norms"] == ["1.weight", "1.bias"]
    assert (every["decayed"], every["undecayed"]) == (6, 0)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    split = capture_run(lambda: program(groups), model).facts("optimizer")[0]
    assert (split["decayed_norms"], split["decayed"], split["undecayed"]) == ([], 2, 4)


# --- what the program itself does to weights ---------------------------------------------------------------------


def _meddling(model: nn.Module, optimizer: torch.optim.Optimizer, at: int | None, decay: bool = False) -> None:
    x, y = data()
    for step in range(8):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        if step == at:
            model[0].weight.data = model[0].weight.data.flip(0) * 2
        if decay:
            with torch.no_grad():
                model[0].weight.mul_(0.99)


def test_weights_that_change_between_steps_are_noted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    found = capture_run(lambda: _meddling(model, optimizer, 3), model).scalars("outside")
    assert np.isfinite(found).nonzero()[0].tolist() == [4]
    assert found[4] > 1


def test_a_small_treatment_is_measured_and_a_plain_loop_has_none():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    found = capture_run(lambda: _meddling(model, optimizer, None, decay=True), model).scalars("outside")
    assert found[1:] == pytest.approx([0.01] * 7, rel=1e-3)
    assert not np.isfinite(found[0])
    assert not np.isfinite(capture_run(lambda: _meddling(model, optimizer, None), model).scalars("outside")).any()
