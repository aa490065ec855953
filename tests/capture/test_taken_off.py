"""The benchmark's way to take the tool off a training between two steps: what it calls bare is bare, and what comes
after is watched as before.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import optimizer

from neuraldbg import NeuralDbg

FOLDER = Path(__file__).parents[2] / "benchmarks"


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


benchmark, models = loaded("aside"), loaded("models")
BEFORE, AWAY, AFTER = 40, 7, 30


def training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    draw = torch.Generator().manual_seed(1)

    def step():
        x = torch.randn(12, 8, generator=draw)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()

    return model, opt, step


def hears():
    """What is asked at every step, as it stands now."""
    stands = (
        nn.Module.__call__,
        torch.autograd.backward,
        torch.optim.Optimizer.zero_grad,
        torch._C._nn.cross_entropy_loss,
    )
    return stands, dict(optimizer._global_optimizer_pre_hooks), dict(optimizer._global_optimizer_post_hooks)


@pytest.mark.parametrize("options", [{"overhead": None}, {"settings": {"capture": {"allowance_s": 0.0}}}])
def test_while_the_tool_is_aside_torch_is_as_it_was_and_no_step_is_seen(options):
    plain = hears()
    alone, _, step = training()
    for _ in range(BEFORE + AWAY + AFTER):
        step()
    model, opt, step = training()
    with NeuralDbg(model, opt, **options) as dbg:
        aside = benchmark.Aside(dbg, model)
        for _ in range(BEFORE):
            step()
        watched = hears()
        assert all(mine is not torchs for mine, torchs in zip(watched[0], plain[0], strict=True))
        for _ in range(2):  # it can be used again
            with aside:
                assert hears() == plain
                assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())
        with aside:
            for _ in range(AWAY):
                step()
        assert hears() == watched
        for _ in range(AFTER):
            step()
    assert hears() == plain
    assert dbg.record().steps == BEFORE + AFTER
    for mine, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_of_a_compiled_training_what_was_compiled_without_the_tool_runs_meanwhile():
    trainer = models.Trainer(models.WORKLOADS["MLP"], compiled=True)
    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    dbg = NeuralDbg(trainer.model, trainer.optimizer, overhead=None)
    with dbg:
        watched = trainer.forward
        way = benchmark.of(trainer, benchmark.Aside(dbg, trainer.model))
        for _ in range(BEFORE):
            trainer.step()
        with way:
            assert trainer.forward is not watched
            for _ in range(AWAY):
                trainer.step()
        assert graphs["unique_graphs"] == before + 2  # one with the tool, one without
        for _ in range(3):  # each finds its own again
            trainer.step()
            with way:
                trainer.step()
        assert graphs["unique_graphs"] == before + 2
        assert trainer.forward is watched
        for _ in range(AFTER):
            trainer.step()
    record = dbg.record()
    assert record.steps == BEFORE + 3 + AFTER
    rows = [row for row, site in enumerate(record.layout.sites) if site.kind in ("activation", "output_grad")]
    assert len(rows) == 2 * len(trainer.model)
    for row in rows:
        norms = record.series(row, "rms").finite()
        assert len(norms) == record.steps
        assert (norms.values > 0).all()


def test_an_eager_training_needs_no_more_than_the_tool_being_aside():
    trainer, way = models.Trainer(models.WORKLOADS["MLP"]), benchmark.Nothing()
    assert benchmark.of(trainer, way) is way
