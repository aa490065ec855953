"""Positions of labels, rows without any, the order of whole numbers and the sign of a divergence, from real graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal, kl_divergence

from neuraldbg.capture.autograd.gaussian_kl import gaussian_kl
from neuraldbg.capture.autograd.graph_walk import walk
from neuraldbg.capture.readers.data.label_predictability import ordinal
from neuraldbg.capture.readers.data.token_alignment import TokenTargets


def variance_terms(mean, variance):
    return variance + mean**2 - 1 - variance.log()


def count_terms(counts, rate):
    return rate - counts * rate.log()


FORMS = {
    "minimised": (lambda m, s: -0.5 * torch.sum(1 + s - m.pow(2) - s.exp()), 1),
    "maximised": (lambda m, s: 0.5 * torch.sum(1 + s - m.pow(2) - s.exp()), -1),
    "turned round": (lambda m, s: 0.5 * (s.exp() + m**2 - 1 - s).sum(1).mean(), 1),
    "bound": (lambda m, s: -(0.5 * (1 + s - m**2 - s.exp()).mean() - 0.0 * m.mean()), 1),
    "rate of counts": (lambda m, s: (s.exp() - 2.0 * s * m).mean(), 0),
    "variance": (lambda m, s: 0.5 * variance_terms(m, F.softplus(s)).sum(), 1),
    "variance, maximised": (lambda m, s: -0.5 * variance_terms(m, F.softplus(s)).sum(), -1),
    "distributions": (
        lambda m, s: kl_divergence(Normal(m, F.softplus(s)), Normal(torch.zeros_like(m), 1.0)).sum(),
        1,
    ),
    "counts": (lambda m, s: F.poisson_nll_loss(F.softplus(s), m.detach().abs().round(), log_input=False), 0),
    "counts, written out": (lambda m, s: count_terms(m.abs(), F.softplus(s)).mean(), 0),
    "uncertainty": (lambda m, s: ((m - 1) ** 2 * (-s).exp() + s).mean(), 0),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_sign_of_a_divergence(form):
    torch.manual_seed(0)
    write, sign = FORMS[form]
    net = nn.Linear(4, 6)
    mean, logvar = net(torch.randn(8, 4)).chunk(2, 1)
    loss = write(mean, logvar) + (mean + torch.randn_like(mean) * (0.5 * logvar).exp()).pow(2).mean()
    assert gaussian_kl(walk(loss.grad_fn, {}, frozenset()).loss_nodes)[0] == sign


def tokens_and_tags(mirrored):
    draws = np.random.default_rng(0)
    found = TokenTargets()
    for _ in range(8):
        x = draws.integers(1, 30, (24, 12))
        lengths = draws.integers(6, 13, 24)
        y = np.full_like(x, -100)
        for row, length in enumerate(lengths):
            x[row, length:] = 0
            tags = x[row, :length] % 4
            y[row, :length] = tags[::-1] if mirrored else tags
        found.add(x, y, -100, [])
    return found.fact()


@pytest.mark.parametrize("mirrored", [False, True])
def test_tokens_tell_the_labels_of_one_order(mirrored):
    order = tokens_and_tags(mirrored)["order"]
    right, wrong = ("mirrored", "given") if mirrored else ("given", "mirrored")
    assert order[right] == 1.0
    assert order[wrong] < order["base"] + 0.1
    assert order["copies"] < 0.2


def test_padding_whose_label_is_also_a_tag():
    draws = np.random.default_rng(0)
    found = TokenTargets()
    real = filled = 0
    for _ in range(4):
        x = draws.integers(1, 40, (32, 16))
        x[np.arange(16)[None] >= draws.integers(4, 17, (32, 1))] = 0
        y = np.where(x == 0, 0, x % 4)
        found.add(x, y, -100, [])
        filled += int(((x == 0) & ((x == 0).sum(1) >= 2)[:, None]).sum())
        real += x.size
    fact = found.fact()
    assert fact["pad"] == 0
    assert fact["padded"] == pytest.approx(filled / real, abs=0.01)


def test_rows_in_which_nothing_counts():
    found = TokenTargets()
    x = np.random.default_rng(0).integers(1, 9, (10, 6))
    y = np.full_like(x, -100)
    y[3, 2] = 1
    found.add(x, y, -100, [])
    assert found.fact()["unlabelled_rows"] == pytest.approx(0.9)


def test_counts_have_an_order_and_names_have_none():
    draws = np.random.default_rng(0)
    x = draws.random((600, 8))
    counts = (x > 0.5).sum(1).astype(float)[:, None]
    kept = (counts[:, 0] >= 1) & (counts[:, 0] <= 7)
    assert ordinal(x[kept], counts[kept]) > 0.9
    names = draws.integers(0, 10, 600)
    centres = draws.normal(size=(10, 8))
    assert abs(ordinal(centres[names] + 0.3 * x, names[:, None].astype(float))) < 0.3
    assert ordinal(x, draws.random((600, 1))) is None
