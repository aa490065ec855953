"""The layers of light steps, read as often as the budget pays for them: the same numbers as in steps read in full."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.session import seeded_trainings
from tests.session.seeded_trainings import TRAININGS, same
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.guest import native
from neuraldbg.capture.loop.native_steps import BatchSizes
from neuraldbg.capture.steps import native_light_steps
from neuraldbg.capture.steps.overhead_budget import Governor

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from neuraldbg.nouns import RunRecord

pytestmark = [pytest.mark.budget, pytest.mark.skipif(native.native is None, reason="native code reads such layers")]

SEEN, UNSEEN = 6, 8
"""Light steps of a stretch whose layers are read, and of one without, at most."""
STEPS = 300


@pytest.fixture(autouse=True)
def stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the first 40 steps full, and read the layers of a few light ones together, now and then."""

    def stretch(self: Governor) -> int:
        if self.overhead is None:
            return 4096
        self.turns = not getattr(self, "turns", False)
        return SEEN if self.sights and self.turns else 0

    monkeypatch.setattr(
        Governor, "decide", lambda self: self.overhead is None or self.full_steps + self.light_steps < 40
    )
    monkeypatch.setattr(Governor, "past", lambda self, step: True)
    monkeypatch.setattr(Governor, "stretch", stretch)
    monkeypatch.setattr(native_light_steps, "LINES", UNSEEN)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 400), nn.Tanh(),
        nn.Linear(400, 3),
    )  # fmt: skip


def train(
    dbg: NeuralDbg | contextlib.nullcontext[None],
    model: nn.Module,
    *,
    size: Callable[[int], int] = lambda step: 32,
    after: Callable[[int], None] = lambda step: None,
    draw: Callable[[int], tuple[Tensor, Tensor]] | None = None,
) -> None:
    generator = torch.Generator().manual_seed(1)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    with dbg:
        for step in range(STEPS):
            if draw is None:
                x = torch.randn(size(step), 8, generator=generator)
                y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
            else:
                x, y = draw(step)
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
            after(step)


def without_facts(run: RunRecord) -> list[int]:
    """Steps whose layers were read, and that were not among the first."""
    steps = run.history.steps[run.history.read]
    return [int(step) for step in steps if step >= 40]


def test_a_stretch_has_the_numbers_that_every_step_has_without_a_budget() -> None:
    runs: list[RunRecord] = []
    for options in ({"overhead": None}, {}):
        model = net()
        torch.manual_seed(7)
        dbg = NeuralDbg(model, settings={"capture": {"histograms": False}}, **options)  # type: ignore[arg-type]
        train(dbg, model)
        runs.append(dbg.record())
    every, some = runs
    read = without_facts(some)
    cost = some.info.coverage["cost"]
    assert cost["sighted_steps"] > 50
    assert len(read) == cost["full_steps"] - 40
    assert cost["sighted_steps"] + 40 <= cost["full_steps"]
    assert cost["light_steps"] > 100
    compared = 0
    for site in every.layout.sites:
        ours, theirs = some.layout.sites.index(site), every.layout.sites.index(site)
        for stat in ("rms", "min", "max", "nonfinite", "count"):
            mine, whole = some.series(ours, stat), every.series(theirs, stat)
            known = dict(zip(whole.steps.tolist(), whole.values.tolist(), strict=True))
            for step, value in zip(mine.steps.tolist(), mine.values.tolist(), strict=True):
                assert value == pytest.approx(known[step], rel=1e-6, nan_ok=True), (site, stat, step)
                compared += step in read
    assert compared > 50 * len(every.layout.sites)


def test_the_step_after_one_that_was_not_read_has_updates_of_its_own() -> None:
    """What is kept of the weights belongs to the step before: it must not be taken for another."""
    model = net()
    before: dict[int, Tensor] = {}
    moved: dict[int, float] = {}

    def after(step: int) -> None:
        now = model[0].weight.detach().clone()
        if step - 1 in before:
            moved[step] = float((now - before[step - 1]).square().mean().sqrt())
        before[step] = now

    dbg = NeuralDbg(model)
    train(dbg, model, after=after)
    run = dbg.record()
    row = next(
        i for i, s in enumerate(run.layout.sites) if s.kind == "update" and s.module == "0" and s.name == "weight"
    )
    found = run.series(row, "rms")
    seen = [(int(step), float(value)) for step, value in zip(found.steps, found.values, strict=True) if step >= 40]
    assert len(seen) > 50
    for step, value in seen:
        assert value == pytest.approx(moved[step], rel=1e-4), step


def test_batch_sizes_are_known() -> None:
    model = net()
    dbg = NeuralDbg(model)
    train(dbg, model, size=lambda step: 32 if step < 150 else 5)
    run = dbg.record()
    sizes = run.scalar("batch_size")
    assert set(sizes.steps.tolist()) >= set(without_facts(run))
    assert all(value == (32 if step < 150 else 5) for step, value in zip(sizes.steps, sizes.values, strict=True))


def test_a_batch_size_is_unknown_where_not_every_pass_was_trained_on() -> None:
    model = net()

    def beside(step: int) -> None:
        if step % 3 == 0:
            model(torch.randn(7, 8))  # for a metric, with gradients left on

    dbg = NeuralDbg(model)
    train(dbg, model, after=beside)
    run = dbg.record()
    sizes = run.scalar("batch_size")
    assert set(sizes.values.tolist()) == {32.0}
    assert len(set(sizes.steps.tolist()) & set(without_facts(run))) > 30


def test_batch_sizes_are_few_and_quick_however_long_the_run() -> None:
    sizes = BatchSizes()
    for step in range(100_000):
        sizes.add(step, 8)
        sizes.add(step, 4)
        assert sizes.of(step, 2) == 12
    assert sizes.of(step, 1) is None
    assert sizes.of(step - 1000, 2) == 12
    assert sizes.of(0, 2) is None


def test_small_changes_of_weights_between_two_steps_are_seen_within_a_stretch() -> None:
    model = net()

    def noise(step: int) -> None:
        if step >= 100:
            with torch.no_grad():
                model[0].weight.mul_(1.01)

    dbg = NeuralDbg(model)
    train(dbg, model, after=noise)
    run = dbg.record()
    outside, read = run.scalar("outside"), without_facts(run)
    facts = {112, 113, 128, 129, 192, 193, 256, 257}  # full steps begin anew
    known = {step for step in read if step > 100 and step - 1 in read} - facts
    assert known <= set(outside.steps.tolist()) <= set(read)
    assert len(outside) > 50
    assert outside.values == pytest.approx(0.01, rel=1e-3)


def test_of_a_large_embedding_only_the_changes_are_left_out() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(500, 16), nn.Flatten(), nn.Linear(48, 3))

    def draw(step: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(500, (32, 3), generator=torch.Generator().manual_seed(step))
        return x, x[:, 0] % 3

    dbg = NeuralDbg(model)
    train(dbg, model, draw=draw)
    run = dbg.record()
    read = set(without_facts(run))
    sighted = run.info.coverage["cost"]["sighted_steps"]
    assert sighted > 50
    steps: dict[tuple[str, str], int] = {}
    for row, site in enumerate(run.layout.sites):
        count = run.series(row, "count")
        there = [int(s) for s, n in zip(count.steps, count.values, strict=True) if int(s) in read and n > 0]
        steps[site.kind, site.module] = len(there)
    assert steps["param", "0"] == steps["param_grad", "0"] == steps["update", "2"] == len(read)
    assert steps["update", "0"] == len(read) - sighted


def test_a_nan_that_one_layer_makes_in_a_stretch_is_known_by_its_layer_at_that_very_step() -> None:
    class Spoilt(nn.Module):
        calls, bad = 0, -1

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * float("nan") if self.calls == self.bad + 1 else x

    runs: list[RunRecord] = []
    while len(runs) < 2:
        model = net()
        model[5] = nn.Sequential(nn.Tanh(), spoilt := Spoilt())
        if runs:
            read = without_facts(runs[0])
            spoilt.bad = next(step for step in read if step > 150 and {step - 2, step - 1, step + 1} <= set(read))
        dbg = NeuralDbg(model, settings={"capture": {"probes": False}})
        train(dbg, model)
        runs.append(dbg.record())
    events = [event for event in runs[1].events if event.kind == "nonfinite_activation"]
    assert (events[0].layer, events[0].first_step) == ("5.1", spoilt.bad)


@pytest.mark.parametrize("name", TRAININGS)
def test_the_training_is_bitwise_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program: Any = TRAININGS[name]
    monkeypatch.setattr(seeded_trainings, "STEPS", 120)
    monkeypatch.setattr(Governor, "decide", lambda self: self.full_steps + self.light_steps < 6)
    seen: list[NeuralDbg] = []

    def watched(model: nn.Module) -> NeuralDbg:
        seen.append(NeuralDbg(model))
        return seen[-1]

    bare = program(lambda model: contextlib.nullcontext())
    same(bare, program(watched), "model")
    cost = seen[0].record().info.coverage["cost"]
    assert cost["full_steps"] + cost["light_steps"] == seen[0].steps
    # A closure computes the gradients within the step, and a scaler divides them: native code leaves both to Python.
    assert (cost["sighted_steps"] > 15) is (name not in ("lbfgs", "grad_scaler"))


def test_a_question_within_a_stretch_and_between_two_loses_no_step() -> None:
    model = net()
    dbg = NeuralDbg(model)
    asked: list[int] = []

    def ask(step: int) -> None:
        if step % 7 == 3:
            asked.append(dbg.record().steps)

    train(dbg, model, after=ask)
    assert asked == [step + 1 for step in range(STEPS) if step % 7 == 3]
    assert np.array_equal(dbg.record().scalar("loss").steps, np.arange(STEPS))
