"""Variational autoencoders whose code carries nothing, and the remedy of each: trained with, it gives a code."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from tests.faults.corpus import Program, record
from tests.faults.golden import Golden
from tests.faults.programs.data import flat_digits
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

if TYPE_CHECKING:
    from neuraldbg import Diagnosis

STEPS, BATCH, UNITS = 400, 64, 8
ACTIVE = 0.1
"""Size of the means of a code that is more than the prior, as ``mode_collapse`` has it."""


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(64, 96), nn.ReLU())
        self.mu, self.logvar = nn.Linear(96, UNITS), nn.Linear(96, UNITS)
        self.dec = nn.Sequential(nn.Linear(UNITS, 96), nn.ReLU(), nn.Linear(96, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        return self.dec(mu + torch.randn_like(mu) * (logvar / 2).exp()), mu, logvar


class SeesTheRowAbove(Vae):
    """A decoder that is given the row of pixels above each pixel, and needs no code."""

    def __init__(self) -> None:
        super().__init__()
        self.dec = nn.Sequential(nn.Linear(UNITS + 64, 96), nn.ReLU(), nn.Linear(96, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z, above = mu + torch.randn_like(mu) * (logvar / 2).exp(), F.pad(x, (8, 0))[:, :64]
        return self.dec(torch.cat([z, above], 1)), mu, logvar


def units(mu: Tensor, logvar: Tensor) -> Tensor:
    return -0.5 * (1 + logvar - mu.pow(2) - logvar.exp())


BCE, MSE = F.binary_cross_entropy_with_logits, F.mse_loss
PAIRS: dict[str, Any] = {
    "mean_and_sum": lambda out, x, mu, logvar: (BCE(out, x), units(mu, logvar).sum()),
    "less_and_still_too_much": lambda out, x, mu, logvar: (BCE(out, x), 7e-3 * units(mu, logvar).sum()),
    "squares": lambda out, x, mu, logvar: (MSE(out, x, reduction="sum") / BATCH, 4 * units(mu, logvar).sum() / BATCH),
    "squares_written_out": lambda out, x, mu, logvar: (((out - x) ** 2).mean(), units(mu, logvar).sum(1).mean()),
    "distributions": lambda out, x, mu, logvar: (
        BCE(out, x),
        kl_divergence(Normal(mu, (logvar / 2).exp()), Normal(0.0, 1.0)).sum(),
    ),
    "decoder_that_needs_no_code": lambda out, x, mu, logvar: (
        BCE(out, x, reduction="sum") / BATCH,
        units(mu, logvar).sum() / BATCH,
    ),
    "weight_not_read": lambda out, x, mu, logvar: (
        MSE(out, x),
        (units(mu, logvar).sum(1).mean() + 1).log(),
    ),
}
"""Reconstruction and divergence, as the program adds them."""
MODELS = {"decoder_that_needs_no_code": SeesTheRowAbove}
ELBO = {
    "sums": lambda out, x, mu, logvar: (BCE(out, x, reduction="sum") / BATCH, units(mu, logvar).sum() / BATCH),
    "means": lambda out, x, mu, logvar: (BCE(out, x), units(mu, logvar).sum() / x.numel()),
    "half": lambda out, x, mu, logvar: (BCE(out, x), 0.5 * units(mu, logvar).sum() / x.numel()),
}


def train(pair: Any, remedy: str = "", model: type[Vae] = Vae) -> tuple[Diagnosis, float]:
    """Train with the sum of a pair of terms, or as the code of a remedy says. Return the diagnosis and the size of the
    means of the code.
    """
    made: list[Vae] = []

    def run() -> None:
        torch.manual_seed(0)
        vae, (images, _) = model(), flat_digits()
        optimizer = torch.optim.Adam(vae.parameters(), 2e-3)
        made.append(vae)
        code = compile(remedy or "loss = reconstruction + kl", "<remedy>", "exec")
        for _ in range(STEPS):
            x = images[torch.randint(0, len(images), (BATCH,))]
            output, mu, logvar = vae(x)
            reconstruction, kl = pair(output, x, mu, logvar)
            names = {"torch": torch, "output": output, "x": x, "mu": mu, "logvar": logvar}
            names |= {"reconstruction": reconstruction, "kl": kl}
            exec(code, names)  # noqa: S102 (the code of the remedy, as a person would paste it)
            optimizer.zero_grad()
            names["loss"].backward()
            optimizer.step()

    program = Program("vae", run, "vae", Golden(), "structure")
    diagnosis = record(program, capture={"allowance_s": 60.0})[1]
    with torch.no_grad():
        size = float(made[0](flat_digits()[0])[1].square().mean().sqrt())
    return diagnosis, size


@cache
def collapsed(name: str) -> tuple[Diagnosis, float]:
    return train(PAIRS[name], model=MODELS.get(name, Vae))


@pytest.mark.parametrize("name", PAIRS)
def test_a_code_that_is_the_prior_is_named(name: str) -> None:
    diagnosis, size = collapsed(name)
    assert size < ACTIVE
    assert diagnosis.verdict != "healthy"
    assert diagnosis.hypotheses[0].cause == "mode_collapse", diagnosis.summary


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "weight_not_read"])
def test_the_remedy_gives_a_code(name: str) -> None:
    remedy = collapsed(name)[0].hypotheses[0].remedy
    cured, size = train(PAIRS[name], remedy.code, MODELS.get(name, Vae))
    assert size > 2 * ACTIVE
    assert cured.verdict == "healthy", cured.summary


@pytest.mark.parametrize("name", ELBO)
def test_a_real_vae_is_healthy(name: str) -> None:
    diagnosis, size = train(ELBO[name])
    assert size > 2 * ACTIVE
    assert diagnosis.verdict == "healthy", diagnosis.summary


def divergent(output: Tensor, x: Tensor, mu: Tensor, logvar: Tensor) -> tuple[Tensor, Tensor]:
    rec = BCE(output, x)
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return rec + kl, kl


def test_the_line_of_the_divergence_is_shown_under_a_title_of_its_own() -> None:
    def run() -> None:
        torch.manual_seed(0)
        vae, (images, _) = Vae(), flat_digits()
        optimizer = torch.optim.Adam(vae.parameters(), 2e-3)
        for _ in range(150):
            x = images[torch.randint(0, len(images), (BATCH,))]
            output, mu, logvar = vae(x)
            loss, _ = divergent(output, x, mu, logvar)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    first = record(Program("vae", run, "vae", Golden(), "structure"), capture={"allowance_s": 60.0})[1].hypotheses[0]
    assert (first.cause, first.title) == ("mode_collapse", "The code of the autoencoder carries nothing")
    assert [line.code for line in first.places] == ["kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())"]
