"""The indices of dead units against those that a hook of the test finds in the same outputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.nouns.facts.dead_indices import DeadIndicesFact
from neuraldbg.saved import Run

STEPS, BATCH = 60, 32


def listed(layer):
    """The indices of a layer of the fact, one by one."""
    return [i for first, last in layer.ranges for i in range(first, last + 1)]


def trained(model, inputs, layer, steps=STEPS, *, each=lambda step: None, **settings):
    """Train, and return the session with each unit's highest output in the last ``window`` steps, by the test's own
    hook on ``layer``."""
    highest = []

    def look(module, args, output):
        del module, args
        others = [d for d in range(output.dim()) if d != 1]
        highest.append(output.detach().amax(others))

    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    hook = layer.register_forward_hook(look)
    with NeuralDbg(model, optimizer, overhead=None, probes=False, **settings) as dbg:
        for step in range(steps):
            each(step)
            optimizer.zero_grad()
            model(inputs()).square().mean().backward()
            optimizer.step()
    hook.remove()
    return dbg, torch.stack(highest)


def kill(layer, units):
    with torch.no_grad():
        layer.bias[units] = -1e3


@pytest.mark.parametrize(
    ("model", "shape", "units"),
    [
        (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), (8,), [2, 3, 4, 9, 15]),
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2)), (3, 8, 8), [0, 6]),
    ],
    ids=["features", "channels"],
)
def test_the_units_that_were_never_positive_are_named(model, shape, units):
    torch.manual_seed(1)
    net = model()
    kill(net[0], units)
    dbg, highest = trained(net, lambda: torch.randn(BATCH, *shape), net[1])
    oracle = torch.flatten((highest <= 0).all(dim=0).nonzero()).tolist()
    assert set(units) <= set(oracle)
    fact = dbg.record().known(DeadIndicesFact)
    (layer,) = [one for one in fact.layers if one.layer == "1"]
    assert listed(layer) == oracle
    assert (layer.dead, layer.units, fact.left_out) == (len(oracle), highest.shape[1], 0)
    # The count that the table has of the same layer at its last reading.
    (row,) = dbg.record().layout.rows("activation", "1")
    assert dbg.record().series(row, "dead").values[-1] == layer.dead


def test_a_run_without_dead_units_has_no_such_fact():
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    dbg, highest = trained(net, lambda: torch.randn(BATCH, 8), net[1])
    assert (highest.amax(dim=0) > 0).all()
    assert dbg.record().known(DeadIndicesFact) is None


def test_units_that_come_back_are_struck_off_the_list():
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    kill(net[0], [5])

    def revive(step):
        if step == 64:
            with torch.no_grad():
                net[0].bias[5] = 1.0

    dbg, _ = trained(net, lambda: torch.randn(BATCH, 8), net[1], 80, each=revive)
    versions = dbg.record().versions(DeadIndicesFact)
    assert [[listed(layer) for layer in fact.layers] for _, fact in versions] == [[[5]], []]


def test_many_stretches_are_listed_up_to_a_bound_and_read_back_from_the_file(tmp_path):
    net = nn.Sequential(nn.Linear(8, 200), nn.ReLU(), nn.Linear(200, 2))
    kill(net[0], list(range(0, 200, 2)))
    dbg, _ = trained(net, lambda: torch.randn(BATCH, 8), net[1], 40, out=tmp_path)
    for record in (dbg.record(), Run.load(tmp_path)):
        (layer,) = record.known(DeadIndicesFact).layers
        assert (layer.dead, layer.units, len(layer.ranges)) == (100, 200, 32)
        assert listed(layer) == list(range(0, 64, 2))
