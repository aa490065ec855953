"""A GAN that is trained under a session, for the tests of what is shown of runs with several optimizers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

ROUNDS = 12


class Generator(nn.Module):
    """Noise in, points out."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 16)
        self.act = nn.ReLU()
        self.out = nn.Linear(16, 2)

    def forward(self, z):
        return self.out(self.act(self.fc(z)))


class Discriminator(nn.Module):
    """Points in, logits out."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 16)
        self.act = nn.ReLU()
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.act(self.fc(x)))


def trained_gan(*, cut, rounds=ROUNDS, out=None):
    """Train a GAN and return its session; with ``cut`` its generator's loss is computed of detached points."""
    torch.manual_seed(0)
    both = nn.ModuleDict({"gen": Generator(), "disc": Discriminator()})
    with NeuralDbg(both, overhead=None, out=out) as dbg:
        opt_d = torch.optim.Adam(both["disc"].parameters(), 1e-2)
        opt_g = torch.optim.Adam(both["gen"].parameters(), 1e-2)
        for _ in range(rounds):
            points = both["gen"](torch.randn(16, 4))
            real = both["disc"](torch.randn(16, 2) + 2)
            fake = both["disc"](points.detach())
            d_loss = F.softplus(-real).mean() + F.softplus(fake).mean()
            opt_d.zero_grad()
            d_loss.backward()
            opt_d.step()
            g_loss = F.softplus(-both["disc"](points.detach() if cut else points)).mean()
            opt_g.zero_grad()
            g_loss.backward()
            opt_g.step()
    return dbg
