"""Both players of a GAN that pull the critic's scores one way, beside sound losses of the field, and the remedy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from tests.faults.corpus import Program, record
from tests.faults.golden import Golden
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg import Diagnosis

    Loss = Callable[[Tensor], Tensor]

ONE, ZERO = torch.ones(64, 1), torch.zeros(64, 1)
JUDGE = F.binary_cross_entropy_with_logits


def usual(real: Tensor, fake: Tensor) -> Tensor:
    return JUDGE(real, ONE) + JUDGE(fake, ZERO)


def turned(real: Tensor, fake: Tensor) -> Tensor:
    return JUDGE(real, ZERO) + JUDGE(fake, ONE)


def squares(real: Tensor, fake: Tensor) -> Tensor:
    return F.mse_loss(real, ONE) + F.mse_loss(fake, ZERO)


def hinge(real: Tensor, fake: Tensor) -> Tensor:
    return F.relu(1 - real).mean() + F.relu(1 + fake).mean()


def wasserstein(real: Tensor, fake: Tensor) -> Tensor:
    return fake.mean() - real.mean()


SOUND: dict[str, tuple[Any, Loss]] = {
    "non-saturating": (usual, lambda scores: JUDGE(scores, ONE)),
    "minimax": (usual, lambda scores: -JUDGE(scores, ZERO)),
    "labels turned": (turned, lambda scores: JUDGE(scores, ZERO)),
    "least squares": (squares, lambda scores: F.mse_loss(scores, ONE)),
    "hinge": (hinge, lambda scores: -scores.mean()),
    "wasserstein": (wasserstein, lambda scores: -scores.mean()),
}
FAULTY: dict[str, tuple[Any, Loss]] = {
    "target of fakes": (usual, lambda scores: JUDGE(scores, ZERO)),
    "labels turned": (turned, lambda scores: JUDGE(scores, ONE)),
    "hinge without minus": (hinge, lambda scores: scores.mean()),
    "wasserstein without minus": (wasserstein, lambda scores: scores.mean()),
}


def train(critic_loss: Any, generator_loss: Loss, *, code: str = "", steps: int = 150, penalty: bool = False):
    """Train a GAN on a ring. Return the diagnosis and the mean distance of its points from the origin."""
    radius: list[float] = []

    def run() -> None:
        torch.manual_seed(0)
        net_g = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        net_d = nn.Sequential(
            nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
        )
        g, d = (torch.optim.Adam(net.parameters(), 1e-3, betas=(0.5, 0.999)) for net in (net_g, net_d))
        for _ in range(steps):
            angle = torch.rand(64) * 2 * math.pi
            real = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(64, 2)
            loss = critic_loss(net_d(real), net_d(net_g(torch.randn(64, 8)).detach()))
            if penalty:
                real.requires_grad_()
                (slope,) = torch.autograd.grad(net_d(real).sum(), real, create_graph=True)
                loss = loss + 0.5 * slope.square().sum(1).mean()
            d.zero_grad()
            loss.backward()
            d.step()
            fake = net_g(torch.randn(64, 8))
            if code:
                names = {"torch": torch, "fake": fake, "net_d": net_d}
                exec(code, names)  # noqa: S102 (the code of the remedy, as a person would paste it)
                loss = names["generator_loss"]
            else:
                loss = generator_loss(net_d(fake))
            g.zero_grad()
            loss.backward()
            g.step()
        radius.append(float(fake.norm(dim=1).mean()))

    found = record(Program("ring", run, "gan", Golden(), "loss"), capture={"allowance_s": 60.0})[1]
    return found, radius[0]


def named(found: Diagnosis) -> list[str]:
    return [one.cause for one in found.hypotheses if one.confidence > 0.5]


@pytest.mark.parametrize("form", FAULTY)
def test_a_generator_that_helps_the_critic_is_named_from_its_first_step_on(form: str) -> None:
    found, _ = train(*FAULTY[form])
    assert named(found)[0] == "adversary_helped", found.summary
    assert found.verdict == "suspect"
    assert found.hypotheses[0].step == 1


@pytest.mark.parametrize("penalty", [False, True], ids=["plain", "with a gradient penalty"])
@pytest.mark.parametrize("form", SOUND)
def test_sound_adversaries_are_not_named(form: str, penalty: bool) -> None:
    found, _ = train(*SOUND[form], penalty=penalty)
    assert "adversary_helped" not in [one.cause for one in found.hypotheses], found.summary


def test_the_remedy_brings_the_points_to_the_data() -> None:
    before, far = train(*FAULTY["target of fakes"], steps=400)
    assert far > 3
    after, near = train(*FAULTY["target of fakes"], steps=400, code=before.hypotheses[0].remedy.code)
    assert 0.5 < near < 1.5
    assert after.verdict == "healthy", after.summary


class Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        del ctx
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        del ctx
        return -gradient


def test_a_reversed_gradient_with_two_optimizers_is_not_named() -> None:
    def run() -> None:
        torch.manual_seed(0)
        features, domain = nn.Sequential(nn.Linear(6, 16), nn.ReLU()), nn.Linear(16, 1)
        first, second = torch.optim.Adam(features.parameters(), 1e-3), torch.optim.Adam(domain.parameters(), 1e-3)
        for _ in range(100):
            ours, theirs = torch.randn(64, 6), torch.randn(64, 6) + 1
            loss = JUDGE(domain(Turn.apply(features(ours))), ONE) + JUDGE(domain(Turn.apply(features(theirs))), ZERO)
            first.zero_grad()
            second.zero_grad()
            loss.backward()
            first.step()
            second.step()

    found = record(Program("domains", run, "gan", Golden(), "loss"), capture={"allowance_s": 60.0})[1]
    assert "adversary_helped" not in [one.cause for one in found.hypotheses], found.summary
