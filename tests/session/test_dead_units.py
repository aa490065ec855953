"""What is said of dead units and unchanged weights in real trainings, against numbers taken by hooks of the tests."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.nouns import column

DOOMED = Path(__file__).parents[2] / "examples" / "doomed_digits.py"


def test_dead_units_are_those_that_fired_in_no_row():
    """In the first steps the units are read at each step, and all rows of small layers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with torch.no_grad():
        model[0].bias[:20] -= torch.linspace(0, 8, 20)  # some units fire rarely, some never
    fired = []
    model[1].register_forward_hook(lambda m, i, o: fired.append((o > 0).any(0)))
    with NeuralDbg(model, overhead=None) as dbg:
        for _ in range(26):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(24, 16)), torch.randint(4, (24,))).backward()
            optimizer.step()
    run = dbg.record()
    (row,) = [r for r in run.layout.rows("activation") if run.layout.sites[r].module == "1"]
    table = np.stack([run.history.row(at) for at in range(26)])[:, row]
    assert table[:19, column("units")].tolist() == [0] * 19
    found = torch.stack(fired)
    for step in range(19, 26):
        known = found[: step + 1]
        silent = ~known[step - 19 :].any(0)
        assert (table[step, column("units")], table[step, column("dead")]) == (48, int(silent.sum()))
        since = int(table[step, column("dead_since")])
        assert not known[since:, silent].any()
        assert since == 0 or known[since - 1, silent].any()
        assert table[step, column("dead_rows")] == 24 * (step + 1 - since)
    assert 0 < int(silent.sum()) < int((~found[-1]).sum()), "in one batch more units are silent than in all"


def test_the_events_of_the_doomed_digits_agree_with_its_own_numbers():
    spec = importlib.util.spec_from_file_location("doomed_digits", DOOMED)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    images = torch.tensor(module.load_digits().images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(module.load_digits().target)
    model = module.ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=module.LEARNING_RATE)
    seen, losses, alive = [], [], []
    model.relu2.register_forward_hook(lambda m, i, o: alive.append(bool((o > 0).any())))
    with NeuralDbg(model, overhead=None) as dbg:
        for _ in range(module.STEPS):
            batch = torch.randint(len(images), (module.BATCH_SIZE,))
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            grads = {name: float(p.grad.norm()) for name, p in model.named_parameters()}
            optimizer.step()
            seen.append({n: (torch.equal(before[n], p), grads[n]) for n, p in model.named_parameters()})
            losses.append(float(loss.detach()))
    diagnosis = dbg.diagnose()
    first = lambda name, ok: next(s for s in range(60) if all(ok(*one[name]) for one in seen[s:]))  # noqa: E731
    events = {(e.kind, e.place): e for e in diagnosis.events}
    for name in ("conv1.weight", "conv2.weight", "fc.weight"):
        assert events["unchanged_parameters", name].first_step == first(name, lambda same, _: same)
    assert seen[-1]["fc.bias"][1] > 0  # so the layer as a whole has a gradient, and its weight has none
    assert events["vanishing_gradients", "fc.weight"].first_step == first("fc.weight", lambda _, grad: grad == 0)
    dead = events["dead_units", "relu2"]
    assert not any(alive[dead.first_step :])
    assert alive[dead.first_step - 1]
    spike = next(e for e in diagnosis.events if e.kind == "loss_spike")
    assert spike.details["loss"] == losses[spike.details["at_step"]] == max(losses)
    rise = next(e for e in diagnosis.events if e.kind == "loss_divergence")
    assert (rise.details["start"], rise.details["start_step"]) == (losses[0], 0)
    assert math.isclose(losses[0], 2.3, abs_tol=0.05)
    assert {"large_weights", "unchanged_parameters", "dead_units"} <= set(diagnosis.hypotheses[0].explains)
    assert {e.kind for e in diagnosis.events} <= set(diagnosis.hypotheses[0].explains)
