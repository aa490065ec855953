"""The summands of a loss by their names: with and without a graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.nouns.facts.terms import TermsFact


def terms(kind: str) -> dict[str, tuple[int, int, int]]:
    net = nn.Linear(4, 4)
    opt = torch.optim.SGD(net.parameters(), 0.05)
    with NeuralDbg(net, probes=False) as dbg:
        for step in range(12):
            x = torch.randn(16, 4)
            out = net(x)
            fit = (out - x).square().mean()
            beta = step / 12
            hard = (out > 0).float().mean()
            soft = torch.sigmoid(out).mean()
            opt.zero_grad()
            if kind == "hard":
                loss = fit + hard
                loss.backward()
            elif kind == "soft":
                loss = fit + beta * soft
                loss.backward()
            elif kind == "number":
                penalty = soft.item()
                loss = fit + penalty
                loss.backward()
            else:
                start = torch.zeros(())
                total = start + fit
                total.backward()
            opt.step()
    fact = dbg.record().known(TermsFact)
    return {one.name: (one.read, one.graph, one.changes) for one in (fact.terms if fact is not None else ())}


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("hard", {"fit": (12, 12, 11), "hard": (12, 0, 11)}),
        ("soft", {"fit": (12, 12, 11), "soft": (12, 12, 11)}),  # beta is a factor
        ("number", {"fit": (12, 12, 11), "penalty": (12, 0, 11)}),
        ("zero", {"fit": (12, 12, 11), "start": (12, 0, 0)}),
    ],
)
def test_terms_by_their_names(kind, wanted):
    found = terms(kind)
    assert found.keys() == wanted.keys()
    for name, (read, graph, changes) in found.items():
        whole, graphs, differing = wanted[name]
        assert 3 <= read <= whole
        assert graph == (read if graphs else 0)
        assert (changes > 1) == (differing > 1)
