"""What was set differently: options of schedulers and optimizers, and the lines of the code that computes the loss."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.compare import compare

STEPS = 8


def masked():
    def contrast(z, tau=0.5):
        sim = z @ z.T / tau
        sim = sim.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        # a comment is no change
        return F.cross_entropy(sim, (torch.arange(len(z)) + 1) % len(z))

    return contrast


def unmasked():
    def contrast(z, tau=0.5):
        sim = z @ z.T / tau
        sim = sim - 3.0 * torch.ones(len(z), len(z))
        return F.cross_entropy(sim, (torch.arange(len(z)) + 1) % len(z))

    return contrast


def rooted():
    def contrast(z):
        return (torch.sqrt((z - 1.0) ** 2 + 1e-3) / torch.log(z.abs() + 3.0)).mean()

    return contrast


def logged():
    def contrast(z):
        return -(torch.log(torch.sigmoid(z) + 1e-3) / torch.log(z.abs() + 4.0)).mean()

    return contrast


def trained(contrast, *, scheduler=None, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, **options)
    with NeuralDbg(model, optimizer, overhead=None, probes=False) as dbg:
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **(scheduler or {}))
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = contrast(F.normalize(model(torch.randn(6, 4)), dim=1))
            loss.backward()
            optimizer.step()
            plateau.step(loss.item())
    return dbg.record()


def told(one, other):
    return {s.name: (s.one, s.other, s.step) for s in compare(one, other).settings}


@pytest.fixture(scope="module")
def usual():
    return trained(masked(), momentum=0.9)


def test_words_of_a_scheduler(usual):
    found = told(usual, trained(masked(), momentum=0.9, scheduler={"mode": "max", "threshold_mode": "abs"}))
    assert found["schedule mode"] == ("min", "max", 0)
    assert found["schedule threshold_mode"] == ("rel", "abs", 0)
    assert "schedule patience" not in found


def test_options_of_an_optimizer(usual):
    found = told(usual, trained(masked(), momentum=0.9, maximize=True, dampening=0.5))
    assert found["optimizer maximize"] == (False, True, 0)
    assert found["optimizer dampening"] == (0.0, 0.5, 0)
    assert "optimizer momentum" not in found


def test_changed_lines_of_a_loss_function(usual):
    found = told(usual, trained(unmasked(), momentum=0.9))
    removed = "sim = sim.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)"
    assert found["code of contrast"] == (removed, "sim = sim - 3.0 * torch.ones(len(z), len(z))", 0)
    assert found["loss operations"][:2] == ("maskedfill", "sub")
    assert "code of trained" not in found


def test_a_function_that_only_one_run_has(usual):
    found = told(usual, trained(rooted(), momentum=0.9))
    assert found["loss operations"][0] != found["loss operations"][1]
    changed = [s for s in compare(usual, trained(rooted(), momentum=0.9)).settings if s.name == "code of contrast"]
    assert any("torch.sqrt" in s.other for s in changed)


def test_the_same_code_tells_nothing(usual):
    assert compare(usual, trained(masked(), momentum=0.9)).settings == ()


def test_operations_of_unlike_losses_are_not_paired():
    """Both losses have a logarithm and a division, which have nothing to do with each other."""
    one, other = trained(logged()), trained(rooted())
    for run in (one, other):
        assert any(site.kind == "op" for site in run.layout.sites)
    found = compare(one, other)
    assert "op" not in {kind.kind for kind in found.kinds}
    again = compare(one, trained(logged()))
    assert "op" in {kind.kind for kind in again.kinds}
    assert again.verdict == "identical"
