"""Weights of terms in a loss, against the gradient that autograd gives one element."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import capture_run
from torch import Tensor, nn

ROWS, PIXELS, UNITS = 32, 64, 8
ELEMENTS = ROWS * PIXELS
MASK = (torch.arange(ROWS) % 4 > 0).float()


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mu, self.logvar, self.dec = nn.Linear(PIXELS, UNITS), nn.Linear(PIXELS, UNITS), nn.Linear(UNITS, PIXELS)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, logvar = self.mu(x), self.logvar(x)
        return self.dec(mu + torch.randn_like(mu) * (logvar / 2).exp()), mu, logvar


def kl(mu: Tensor, logvar: Tensor) -> Tensor:
    return -0.5 * (1 + logvar - mu.pow(2) - logvar.exp())


BCE = F.binary_cross_entropy_with_logits
LOSSES = {
    "mean and sum": (lambda o, x, m, s: BCE(o, x) + kl(m, s).sum(), 1 / ELEMENTS, 1.0),
    "sums over the batch": (
        lambda o, x, m, s: (BCE(o, x, reduction="sum") + kl(m, s).sum()) / len(x),
        1 / ROWS,
        1 / ROWS,
    ),
    "weighted": (
        lambda o, x, m, s: F.mse_loss(o, x, reduction="none").sum(1).mean() + 3 * kl(m, s).sum(1).mean(),
        1 / ROWS,
        3 / ROWS,
    ),
    "written out": (lambda o, x, m, s: ((o - x) ** 2).mean() + kl(m, s).mean(), 1 / ELEMENTS, 1 / ROWS / UNITS),
    "scalar times a mask": (
        lambda o, x, m, s: (((o - x) ** 2 / 0.1).sum(-1) * MASK + kl(m, s).sum() * MASK).sum() / MASK.sum(),
        10 / ROWS,
        1.0,
    ),
    "not constant": (lambda o, x, m, s: BCE(o, x).sqrt() + (kl(m, s).sum() + 1).log(), None, None),
}


@pytest.mark.parametrize("name", LOSSES)
def test_weights_of_reconstruction_and_divergence(name: str) -> None:
    loss_of, reconstruction, divergence = LOSSES[name]
    torch.manual_seed(0)
    vae, x = Vae(), torch.rand(ROWS, PIXELS)

    def program() -> None:
        optimizer = torch.optim.SGD(vae.parameters(), lr=1e-3)
        out, mu, logvar = vae(x)
        loss_of(out, x, mu, logvar).backward()
        optimizer.step()

    (fact,) = capture_run(program, vae).facts("loss")
    (term,) = fact["terms"]
    assert term["weight"] == (reconstruction if reconstruction is None else pytest.approx(reconstruction, rel=1e-5))
    found = fact.get("kl_weight")
    assert found == (divergence if divergence is None else pytest.approx(divergence, rel=1e-5))
    if divergence is None:
        return
    # The gradient of a divergence at a mean is the mean, times the weight of the divergence.
    _, mu, logvar = vae(x)
    mu = mu.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_of(x, x, mu, logvar.detach()), mu)
    assert torch.allclose(gradient, divergence * mu, rtol=1e-4, atol=1e-8)
