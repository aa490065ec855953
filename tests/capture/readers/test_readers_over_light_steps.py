"""Readers of long runs, of which most steps go by unseen: no fact becomes false by that, and none is lost."""

from __future__ import annotations

import copy
import io
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.capture.chosen_light_steps import gaps, usual
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

from neuraldbg import NeuralDbg
from neuraldbg.capture import Capture
from neuraldbg.config import CaptureSettings

BY = {"order": "stream", "batches": "model", "targets": "slot", "schedule": "id", "memory": "stream", "resume": "id",
      "clip": "stream", "copies": "model", "evaluation_modes": "model", "unstepped": "id", "accumulation": "stream",
      "optimizer": "stream", "loss": "stream", "modes": "model", "experiment": "id",
      "gradient_course": "stream"}  # fmt: skip
STEPS = 300
DATA, HELD = 320, 64


def facts(program: Any, **how: Any) -> dict[str, dict[Any, dict[str, Any]]]:
    """The newest facts of a run by key and identity; with gaps if ``how`` says so, as to ``gaps``."""
    found: dict[str, dict[Any, dict[str, Any]]] = {}

    def keep(some: Any) -> None:
        for fact in some:
            found.setdefault(fact.key, {})[fact.value.get(BY.get(fact.key, ""))] = fact.value

    with gaps(**how) if how else nullcontext():
        capture = Capture(CaptureSettings(overhead=None), lambda step, _: keep(step.facts), discover=True, note=keep)
        capture.start()
        try:
            program()
        finally:
            capture.stop()
    return found


def scalars(program: Any, name: str, **how: Any) -> dict[int, float]:
    found: dict[int, float] = {}

    def keep(step: Any, _: Any) -> None:
        if name in step.scalars:
            found[step.index] = step.scalars[name]

    with gaps(**how) if how else nullcontext():
        capture = Capture(CaptureSettings(overhead=None), keep, discover=True)
        capture.start()
        try:
            program()
        finally:
            capture.stop()
    return found


def causes(program: Any, **how: Any) -> list[str]:
    with gaps(**how), NeuralDbg(discover=True, overhead=None) as dbg:
        program()()  # made inside, so that what it makes is seen
    return [h.cause for h in dbg.diagnose().hypotheses]


def net(*, norms: bool = False) -> nn.Module:
    torch.manual_seed(0)
    first = [nn.Linear(12, 24), nn.BatchNorm1d(24)] if norms else [nn.Linear(12, 24)]
    return nn.Sequential(*first, nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 4))


def data(seed: int = 0, count: int = DATA, *, ordered: bool = False) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 12, generator=made)
    y = (x @ torch.randn(12, 4, generator=torch.Generator().manual_seed(9))).argmax(1)
    order = y.argsort() if ordered else torch.arange(count)
    return x[order], y[order]


def loader(*, shuffle: bool = True, ordered: bool = False) -> DataLoader:
    return DataLoader(TensorDataset(*data(ordered=ordered)), 16, shuffle=shuffle, drop_last=True)


class Loop:
    """A training loop with holes that the programs below fill."""

    def __init__(self, model: nn.Module | None = None, *, lr: float = 1e-2, steps: int = STEPS, **kind: Any) -> None:
        self.model = model or net()
        self.opt = torch.optim.Adam(self.model.parameters(), lr)
        self.steps = steps
        self.loader = loader(**kind)
        self.step = 0

    def before(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x), y)

    def clear(self) -> None:
        self.opt.zero_grad()

    def learn(self, loss: Tensor) -> None:
        loss.backward()

    def take(self) -> None:
        self.opt.step()

    def after(self) -> None:
        pass

    def epoch(self) -> None:
        pass

    def __call__(self) -> None:
        while self.step < self.steps:
            for x, y in self.loader:
                self.clear()
                self.learn(self.before(x, y))
                self.take()
                self.after()
                self.step += 1
                if self.step == self.steps:
                    return
            self.epoch()


class Evaluated(Loop):
    """Evaluation after each epoch, in the right mode."""

    def epoch(self) -> None:
        self.model.eval()
        x, y = data(1, HELD)
        with torch.no_grad():
            for part in range(0, HELD, 16):
                F.cross_entropy(self.model(x[part : part + 16]), y[part : part + 16])
        self.model.train()


class Scored(Loop):
    """A look at the batch that was just trained on, after each step, in training mode: a training accuracy."""

    def before(self, x: Tensor, y: Tensor) -> Tensor:
        self.batch = x
        return super().before(x, y)

    def after(self) -> None:
        with torch.no_grad():
            self.model(self.batch).argmax(1)


class PerEpoch(Evaluated):
    def __init__(self, **kind: Any) -> None:
        super().__init__(**kind)
        self.schedule = lr_scheduler.CosineAnnealingLR(self.opt, 15)

    def epoch(self) -> None:
        super().epoch()
        self.schedule.step()


class PerStep(Loop):
    def __init__(self, **kind: Any) -> None:
        super().__init__(**kind)
        self.schedule = lr_scheduler.OneCycleLR(self.opt, 1e-2, total_steps=STEPS + 1)

    def after(self) -> None:
        self.schedule.step()


class Plateau(Evaluated):
    def __init__(self, **kind: Any) -> None:
        super().__init__(**kind)
        self.schedule = lr_scheduler.ReduceLROnPlateau(self.opt, patience=3)
        self.told = 1.0

    def epoch(self) -> None:
        super().epoch()
        self.told *= 0.95
        self.schedule.step(self.told)


class Sequential(PerStep):
    def __init__(self, **kind: Any) -> None:
        super().__init__(**kind)
        parts = [lr_scheduler.LinearLR(self.opt, 0.1, total_iters=20), lr_scheduler.CosineAnnealingLR(self.opt, STEPS)]
        self.schedule = lr_scheduler.SequentialLR(self.opt, parts, [20])


class Restarts(PerStep):
    def __init__(self, **kind: Any) -> None:
        super().__init__(**kind)
        self.schedule = lr_scheduler.CosineAnnealingWarmRestarts(self.opt, 100)


class Accumulated(Loop):
    def __call__(self) -> None:
        batches = [batch for _ in range(10) for batch in self.loader]
        for i in range(4 * 40):
            x, y = batches[i]
            (self.before(x, y) / 4).backward()
            if i % 4 == 3:
                self.opt.step()
                self.opt.zero_grad()


class Average(Evaluated):
    """An average of the weights that begins late, and is what is evaluated."""

    begins = 100

    def __init__(self, **kind: Any) -> None:
        super().__init__(**kind)
        self.ema_model = copy.deepcopy(self.model).requires_grad_(False)

    def after(self) -> None:
        if self.step >= self.begins:
            with torch.no_grad():
                for mine, theirs in zip(self.ema_model.parameters(), self.model.parameters(), strict=True):
                    mine.lerp_(theirs, 0.1)

    def epoch(self) -> None:
        self.ema_model.eval()
        with torch.no_grad():
            self.ema_model(data(1, HELD)[0])


class Swa(Evaluated):
    def __init__(self, **kind: Any) -> None:
        super().__init__(**kind)
        self.swa = AveragedModel(self.model)

    def epoch(self) -> None:
        if self.step > 150:
            self.swa.update_parameters(self.model)
        self.swa.eval()
        with torch.no_grad():
            self.swa(data(1, HELD)[0])


class Clipped(Loop):
    def learn(self, loss: Tensor) -> None:
        super().learn(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)


class Scaled(Loop):
    """A loss scale by hand, that is halved and doubled."""

    scale = 1024.0

    def learn(self, loss: Tensor) -> None:
        (self.scale * loss).backward()
        for p in self.model.parameters():
            p.grad.div_(self.scale)
        self.scale = 1024.0 if self.step % 100 else 512.0


class Amp(Loop):
    def __init__(self, **kind: Any) -> None:
        super().__init__(**kind)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def learn(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.opt)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def take(self) -> None:
        self.scaler.step(self.opt)
        self.scaler.update()


class Two(Loop):
    """Two optimizers that take turns, one of them rarely and late."""

    def __init__(self, **kind: Any) -> None:
        super().__init__(**kind)
        torch.manual_seed(1)
        self.other = nn.Linear(12, 1)
        self.second = torch.optim.SGD(self.other.parameters(), 0.01, momentum=0.9)
        self.x = data()[0][:16]

    def after(self) -> None:
        self.second.zero_grad()
        self.other(self.x).square().mean().backward()
        if self.step > 70 and self.step % 50 == 20:
            self.second.step()


class Together(Two):
    def after(self) -> None:
        pass

    def before(self, x: Tensor, y: Tensor) -> Tensor:
        return super().before(x, y) + self.other(x).square().mean()

    def clear(self) -> None:
        self.opt.zero_grad()
        self.second.zero_grad()

    def take(self) -> None:
        self.opt.step()
        self.second.step()


class Restored(Loop):
    """Saved at the beginning, and loaded twice: where it is seen and where it is not."""

    def after(self) -> None:
        if self.step == 20:
            self.file = io.BytesIO()
            torch.save({"model": self.model.state_dict(), "optimizer": self.opt.state_dict(), "step": 20}, self.file)
        if self.step in (40, 170):
            self.file.seek(0)
            held = torch.load(self.file)
            self.model.load_state_dict(held["model"])
            self.opt.load_state_dict(held["optimizer"])


class Language(Loop):
    def __init__(self, **kind: Any) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 32)), **kind)
        made = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(32, (DATA, 13), generator=made)
        self.tokens[:, 1::2] = (self.tokens[:, :-1:2] * 5 + 1) % 32
        self.loader = DataLoader(TensorDataset(self.tokens, self.tokens), 16, shuffle=True)

    def before(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x[:, :-1]).flatten(0, 1), y[:, 1:].flatten())


class Normed(Evaluated):
    def __init__(self, **kind: Any) -> None:
        super().__init__(net(norms=True), **kind)


class Unshuffled(Evaluated):
    def __init__(self) -> None:
        super().__init__(shuffle=False)


class LateReload(Loop):
    """Weights that the program sets anew where nobody sees it."""

    def after(self) -> None:
        if self.step == 120:
            for p in self.model.parameters():
                p.data.mul_(0.5)


HEALTHY = [
    Loop, Evaluated, Scored, PerEpoch, PerStep, Plateau, Sequential, Restarts, Accumulated, Average, Swa, Clipped,
    Scaled, Two, Together, Restored, Language, Normed, Unshuffled, LateReload,
    Amp,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("program", HEALTHY)
def test_a_healthy_program_is_healthy_with_gaps(program):
    assert causes(program) == []


@pytest.mark.slow
@pytest.mark.parametrize("program", [Evaluated, PerEpoch, Accumulated, Clipped, Amp, Two, Together, Restored, Language])
def test_facts_of_the_program_are_those_of_a_run_without_gaps(program):
    whole, part = facts(program()), facts(program(), full=usual)
    for key in ("order", "loss", "modes", "operations", "dropout", "accumulation", "unstepped", "resume", "memory",
                "optimizer", "params", "precision", "symmetry", "hidden", "cuts", "ties"):  # fmt: skip
        seen, all_of_it = ({k: _timeless(v) for k, v in found.get(key, {}).items()} for found in (part, whole))
        if program in (Two, Restored):  # what happens late only may go by unseen
            all_of_it = {k: v for k, v in all_of_it.items() if k in seen}
        assert seen == all_of_it, key


def _timeless(fact: dict[str, Any]) -> dict[str, Any]:
    """A fact without what is counted or measured."""
    moving = ("steps", "backwards", "zeroed", "step", "layers", "terms", "groups")
    return {name: value for name, value in fact.items() if name not in moving}


@pytest.mark.slow
@pytest.mark.parametrize("program", [PerEpoch, PerStep, Plateau, Sequential, Restarts])
def test_schedules_are_counted_whole(program):
    whole, part = (facts(program(), **how)["schedule"] for how in ({}, {"full": usual}))
    names = ("type", "steps", "optimizer_steps", "position", "double", "early", "pass_steps", "params")
    assert [{n: f[n] for n in names if f["type"] != "ReduceLROnPlateau" or n != "params"} for f in part.values()] == [
        {n: f[n] for n in names if f["type"] != "ReduceLROnPlateau" or n != "params"} for f in whole.values()
    ]


# -- what lies on both sides of a gap is not taken for neighbours


def test_gradients_of_steps_apart_are_not_compared():
    def some(step: int) -> bool:
        return step < 40 or step % 10 in (3, 4, 7)

    turns = scalars(Loop(), "gradient_turn", full=some)
    late = [step for step in turns if step > 40]
    assert {step % 10 for step in late} >= {4}
    assert all(some(step - 1) or (step - 1) % 16 == 0 for step in late)  # or one with facts


def test_the_window_of_gradients_does_not_span_the_whole_run():
    found = facts(Loop(steps=800), full=lambda step: step < 32 or step % 40 < 2)["gradient_course"][0]["windows"]
    assert all(window["last"] - window["first"] <= 512 for window in found)


def test_a_look_at_a_batch_that_was_trained_on_unseen_is_no_validation():
    found = facts(Scored(net(norms=True)), full=_ones)
    assert "evaluation_modes" not in found


def _ones(step: int) -> bool:
    return step < 20 or step % 10 == 0


class Sorted(Unshuffled):
    def __init__(self) -> None:
        super(Unshuffled, self).__init__(shuffle=False, ordered=True)


def test_the_order_of_targets_is_that_of_the_steps_seen_before_the_gap():
    short = Sorted()
    short.steps = 64
    before, gapped = facts(short)["targets"][0], facts(Sorted(), full=lambda step: step < 64)["targets"][0]
    for name in ("same_next", "switches", "period", "batch_entropy"):
        assert gapped[name] == pytest.approx(before[name], rel=0.1), name
    assert before["period"] == 20


def test_equal_batches_on_both_sides_of_a_gap_are_no_run():
    loop = Loop()
    same = data()[0][:16], data()[1][:16]
    other = data()[0][16:32], data()[1][16:32]
    loop.loader = [same if step % 10 in (0, 9) else other for step in range(60)]  # one list: no loader, no new tensors
    loop.steps = 60
    runs = facts(loop, full=lambda step: step < 3 or step % 10 in (8, 9) or step % 10 < 2)["batches"]
    lengths = next(iter(runs.values()))["runs"]["lengths"]
    assert lengths.get("2", 0) >= 1  # 9 and 0 were both seen
    gone = facts(_again(loop), full=lambda step: step < 3 or step % 10 in (8, 9))["batches"]
    assert set(next(iter(gone.values()))["runs"]["lengths"]) <= {"1"}


def _again(loop: Loop) -> Loop:
    loop.step = 0
    return loop


class Remade(Loop):
    """An optimizer that is made anew after each epoch of 20 steps."""

    def epoch(self) -> None:
        self.opt = torch.optim.Adam(self.model.parameters(), 1e-2)


def test_how_often_an_optimizer_forgets_is_said_of_what_was_seen():
    whole, part = facts(Remade())["memory"][0], facts(Remade(), full=lambda s: s < 70 or s % 20 in (18, 19, 0, 1))
    assert whole["every"] == part["memory"][0]["every"] == 20
    late = facts(Remade(), full=lambda s: s < 4 or s % 20 in (19, 0))["memory"][0]
    assert late["every"] >= 20


class Broken(Loop):
    """Weights that become NaN where nobody sees it."""

    def after(self) -> None:
        if self.step == 120:
            with torch.no_grad():
                self.model[3].weight.fill_(float("nan"))


def test_a_birth_in_the_gap_is_not_laid_to_the_first_step_after_it():
    births = [v for v in facts(Broken(), full=lambda s: s < 64 or s % 50 < 4).get("experiment", {}).values()
              if v["name"] == "nonfinite_birth"]  # fmt: skip
    assert births == []


# -- what was learnt before the gap is not forgotten


class Uncleared(Loop):
    def clear(self) -> None:
        pass


class ValidatedInTraining(Normed):
    def epoch(self) -> None:
        x, _ = data(1, HELD)
        with torch.no_grad():
            for part in range(0, HELD, 16):
                self.model(x[part : part + 16])


class Stale(Average):
    begins = 10_000


class LateClip(Loop):
    def after(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.01)


class Wiped(Accumulated):
    def __call__(self) -> None:
        batches = [batch for _ in range(10) for batch in self.loader]
        for i in range(4 * 40):
            self.opt.zero_grad()
            (self.before(*batches[i]) / 4).backward()
            if i % 4 == 3:
                self.opt.step()


class PastScaler(Amp):
    def learn(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def take(self) -> None:
        self.opt.step()
        self.scaler.update(64.0)


class NeverScheduled(PerStep):
    def after(self) -> None:
        pass


class Swinging(PerStep):
    def __init__(self, **kind: Any) -> None:
        super().__init__(**kind)
        self.schedule = lr_scheduler.CosineAnnealingLR(self.opt, 10)


FAULTS = {
    Uncleared: "missing_zero_grad", ValidatedInTraining: "train_mode_in_eval", Stale: "ema_stale",
    LateClip: "clip_misplaced", Wiped: "accumulation_wiped", PastScaler: "loss_scale_misuse",
    NeverScheduled: "schedule_error", Swinging: "schedule_error", Sorted: "unshuffled_data",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("program", "cause"), FAULTS.items())
def test_a_fault_is_found_all_the_same(program, cause):
    assert cause in causes(program)
