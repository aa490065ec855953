"""A GAN that draws one of eight modes at a time, and its remedy: trained with, it draws all of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from tests.faults.corpus import Program, record
from tests.faults.golden import Golden
from torch import Tensor, nn

if TYPE_CHECKING:
    from neuraldbg import Diagnosis

STEPS = 1100


def ring(n: int) -> Tensor:
    angle = torch.randint(0, 8, (n,)) * (2 * math.pi / 8)
    return torch.stack([angle.cos(), angle.sin()], 1) * 2 + 0.1 * torch.randn(n, 2)


def modes(points: Tensor) -> int:
    """Return the number of modes that get a fiftieth of the points at least."""
    at = (torch.atan2(points[:, 1], points[:, 0]) / (2 * math.pi / 8)).round() % 8
    return int((torch.bincount(at.long(), minlength=8) > len(points) / 50).sum())


def train(code: str = "") -> tuple[Diagnosis, int]:
    """Train on eight points of a ring, with the code of a remedy. Return the diagnosis and how many modes are drawn."""
    drawn: list[int] = []

    def run() -> None:
        torch.manual_seed(0)
        generator = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
        critic = nn.Sequential(
            nn.Linear(2, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1)
        )
        mine, other = (torch.optim.Adam(net.parameters(), 5e-4, betas=(0.5, 0.999)) for net in (generator, critic))
        pasted = compile(code, "<remedy>", "exec")
        for _ in range(STEPS):
            real, fake = ring(128), generator(torch.randn(128, 16))
            loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
            names = {"torch": torch, "real": real, "critic": critic, "critic_loss": loss}
            exec(pasted, names)  # noqa: S102 (the code of the remedy, as a person would paste it)
            other.zero_grad()
            names["critic_loss"].backward()
            other.step()
            mine.zero_grad()
            F.softplus(-critic(fake)).mean().backward()
            mine.step()
        with torch.no_grad():
            drawn.append(modes(generator(torch.randn(2000, 16))))

    found = record(Program("ring", run, "gan", Golden(), "structure"), capture={"allowance_s": 60.0})[1]
    return found, drawn[0]


@pytest.mark.slow
def test_one_mode_is_named_and_the_remedy_draws_all() -> None:
    before, few = train()
    assert few <= 2
    assert before.verdict == "suspect"
    assert before.hypotheses[0].cause == "mode_collapse", before.summary
    after, many = train(before.hypotheses[0].remedy.code)
    assert many >= 6
    assert after.verdict == "healthy", after.summary
