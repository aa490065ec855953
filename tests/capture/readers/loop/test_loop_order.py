"""What the readers of the loop learn from real loops: order, accumulation, clipping, schedule, state, scaler."""

from __future__ import annotations

import io
from collections import defaultdict

import pytest
import torch
import torch.nn.functional as F
from tests.capture.captured_run import CapturedRun, capture_run
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from neuraldbg import NeuralDbg
from neuraldbg.capture import Capture
from neuraldbg.config import CaptureSettings


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(16, 6, generator=made), torch.randint(3, (16,), generator=made)


def loss_of(model: nn.Module, seed: int = 0, factor: float = 1.0) -> Tensor:
    x, y = batch(seed)
    return F.cross_entropy(factor * model(x), y)


def noted(program, *models, key: str) -> list[dict]:
    """The newest facts of a kind, those of the whole run included."""
    found = CapturedRun()
    late: list[dict] = []

    def emit(step, layout):
        found.steps.append(step)
        found.layouts.append(layout)

    capture = Capture(
        CaptureSettings(), emit, discover=True, note=lambda facts: late.extend(f.value for f in facts if f.key == key)
    )
    capture.start()
    try:
        program()
    finally:
        capture.stop()
    return [*found.facts(key), *late]


def test_the_order_of_a_step_is_written_once_and_again_when_it_changes():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = lr_scheduler.StepLR(optimizer, 100)

    def program():
        for step in range(12):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            if step >= 6:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()

    orders = [fact["order"] for fact in capture_run(program, model).facts("order")]
    assert orders == [
        ["zero_grad", "forward", "backward", "step"],
        ["schedule", "zero_grad", "forward", "backward", "step"],
        ["schedule", "zero_grad", "forward", "backward", "clip", "step"],
    ]


def accumulate(model, optimizer, *, wipe: bool, divisor: float = 4.0, steps: int = 6):
    def program():
        for i in range(4 * steps):
            if wipe or i % 4 == 0:
                optimizer.zero_grad()
            (loss_of(model, i) / divisor).backward()
            if i % 4 == 3:
                optimizer.step()

    return program


@pytest.mark.parametrize(("wipe", "lost"), [(True, 3), (False, 0)])
def test_cleared_micro_batches_are_counted(wipe, lost):
    model = net()
    found = capture_run(accumulate(model, torch.optim.SGD(model.parameters(), 0.1), wipe=wipe), model)
    assert set(found.scalars("wiped")) == {lost}
    fact = found.facts("accumulation")[-1]
    assert (fact["backwards"], fact["forwards"], fact["wiped"], fact["divisor"]) == (4, 4, lost, 4.0)


@pytest.mark.parametrize("divide", [lambda x: x / 4, lambda x: 0.25 * x, lambda x: x * torch.tensor(0.25)])
def test_the_divisor_is_read_however_it_is_written(divide):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def program():
        for i in range(8):
            divide(loss_of(model, i)).backward()
            if i % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

    assert capture_run(program, model).facts("accumulation")[-1]["divisor"] == pytest.approx(4.0)


def test_what_is_cleared_on_purpose_is_not_wiped():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def sharpness_aware():
        for i in range(6):
            optimizer.zero_grad()
            loss_of(model, i).backward()
            moves = [0.05 * p.grad for p in model.parameters()]
            for p, move in zip(model.parameters(), moves, strict=True):
                p.data.add_(move)
            optimizer.zero_grad()
            loss_of(model, i).backward()
            for p, move in zip(model.parameters(), moves, strict=True):
                p.data.sub_(move)
            optimizer.step()

    def adversarial():
        for i in range(6):
            x, y = batch(i)
            x.requires_grad_()
            F.cross_entropy(model(x), y).backward()
            optimizer.zero_grad()
            F.cross_entropy(model((x + 0.1 * x.grad.sign()).detach()), y).backward()
            optimizer.step()

    def by_hand():
        for i in range(6):
            kept = []
            for part in range(2):
                optimizer.zero_grad()
                loss_of(model, 2 * i + part).backward()
                kept.append([p.grad.clone() for p in model.parameters()])
            for p, a, b in zip(model.parameters(), *kept, strict=True):
                p.grad = a + b
            optimizer.step()

    for program in (sharpness_aware, adversarial, by_hand):
        wiped = [value for value in capture_run(program, model).scalars("wiped") if value == value]  # noqa: PLR0124
        assert not any(wiped), program.__name__


@pytest.mark.parametrize(
    ("place", "field"), [("before", "before_backward"), ("after", "after_step"), ("right", "right")]
)
def test_where_clipping_stands_and_what_is_stepped_with(place, field):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def program():
        for i in range(8):
            loss = loss_of(model, i, 20.0)
            if place == "before":
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            loss.backward()
            if place == "right":
                nn.utils.clip_grad_norm_(iter(list(model.parameters())), 0.1)
            optimizer.step()
            if place == "after":
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.zero_grad()

    fact = noted(program, key="clip")[-1]
    assert fact["limit"] == 0.1
    assert fact[field] == fact["calls"] >= 7
    assert (fact["exceeded"] > 0) == (place != "right")
    assert (fact["worst"] > 1.01) == (place != "right")


def test_clipping_by_value_leaves_a_generator_whole():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def program():
        for i in range(4):
            optimizer.zero_grad()
            loss_of(model, i, 20.0).backward()
            nn.utils.clip_grad_value_((p for p in model.parameters()), 1e-3)
            assert max(float(p.grad.abs().max()) for p in model.parameters()) <= 1e-3 * 1.001
            optimizer.step()

    fact = noted(program, key="clip")[-1]
    assert (fact["kind"], fact["right"], fact["calls"]) == ("value", 4, 4)


@pytest.mark.parametrize(("unscale", "scaled"), [(True, 0), (False, 5)])
def test_clipping_before_unscale_is_seen(unscale, scaled):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)

    def program():
        for i in range(5):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, i)).backward()
            if unscale:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    fact = noted(program, key="clip")[-1]
    assert fact["scaled"] == scaled
    assert fact["scale"] == (1.0 if unscale else 512.0)


def test_a_schedule_is_counted_against_its_optimizer_and_the_epochs():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    made = [lr_scheduler.StepLR(optimizer, 7, 0.5), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    data = TensorDataset(*batch())

    def program():
        made.append(lr_scheduler.CosineAnnealingLR(optimizer, 10))
        for _ in range(3):
            for xs, ys in DataLoader(data, 4):
                optimizer.zero_grad()
                F.cross_entropy(model(xs), ys).backward()
                optimizer.step()
                made[0].step()
            made[1].step()
            made[1].step()

    latest = {fact["type"]: fact for fact in noted(program, key="schedule")}
    step, decay, cosine = (latest[name] for name in ("StepLR", "ExponentialLR", "CosineAnnealingLR"))
    assert (step["steps"], step["params"]["step_size"], step["position"], step["double"]) == (12, 7, 12, 0)
    assert (decay["steps"], decay["double"]) == (6, 3)
    assert (cosine["steps"], cosine["params"]["T_max"], cosine["optimizer_steps"]) == (0, 10, 12)
    assert (cosine["passes"], cosine["pass_steps"]) == (3, 4)


@pytest.mark.budget
def test_passes_that_begin_in_light_steps_are_counted_by_the_steps_of_the_optimizer():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = TensorDataset(*batch())

    def program():
        lr_scheduler.StepLR(optimizer, 7)
        for _ in range(60):
            for xs, ys in DataLoader(data, 8):
                optimizer.zero_grad()
                F.cross_entropy(model(xs), ys).backward()
                optimizer.step()

    with NeuralDbg(model, settings={"capture": {"allowance_s": 0.0, "overhead": 1e-6}}) as dbg:
        program()
    record = dbg.record()
    assert int(record.history.read.sum()) < 60, record.info.coverage  # most passes were not seen
    fact = record.facts_of("schedule")[-1].value
    assert fact["pass_steps"] == 2
    assert 59 <= fact["passes"] <= 60


def test_schedulers_inside_others_are_not_their_own():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def program():
        parts = [lr_scheduler.LinearLR(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, 10)]
        whole = lr_scheduler.SequentialLR(optimizer, parts, [3])
        for i in range(6):
            optimizer.zero_grad()
            loss_of(model, i).backward()
            optimizer.step()
            whole.step()

    assert {fact["type"] for fact in noted(program, key="schedule") if fact["steps"] > 2} == {"SequentialLR"}


def test_new_and_emptied_optimizers_are_noticed_where_the_weights_go_on():
    model = net()

    def step(optimizer, i):
        optimizer.zero_grad()
        loss_of(model, i).backward()
        optimizer.step()

    def made_anew():
        for i in range(8):
            step(torch.optim.Adam(model.parameters(), 1e-3), i)

    def emptied():
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for i in range(8):
            if i % 2 == 0:
                optimizer.state = defaultdict(dict)
            step(optimizer, i)

    def weights_loaded_between():
        old = {key: value.clone() for key, value in model.state_dict().items()}
        for i in range(8):
            model.load_state_dict(old)
            step(torch.optim.Adam(model.parameters(), 1e-3), i)

    def without_memory():
        for i in range(8):
            step(torch.optim.SGD(model.parameters(), 1e-3), i)

    remade, clean = noted(made_anew, key="memory")[-1], noted(emptied, key="memory")[-1]
    assert (remade["remade"], remade["every"], remade["first"]) == (7, 1, 1)
    assert (clean["emptied"], clean["every"], clean["first"]) == (3, 2, 2)
    assert not noted(weights_loaded_between, key="memory")
    assert not noted(without_memory, key="memory")


@pytest.mark.parametrize("whole", [True, False])
def test_a_checkpoint_loaded_by_half(whole):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loss_of(model).backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"epoch": 4, "model": model.state_dict(), "optim": optimizer.state_dict()}, file)
    file.seek(0)

    def program():
        checkpoint = torch.load(file)
        again = net()
        again.load_state_dict(checkpoint["model"])
        fresh = torch.optim.Adam(again.parameters(), 1e-3)
        if whole:
            fresh.load_state_dict(checkpoint["optim"])
        for i in range(3):
            fresh.zero_grad()
            loss_of(again, i).backward()
            fresh.step()

    fact = noted(program, key="resume")[-1]
    assert (fact["where"], fact["states"], fact["lr"], fact["numbers"]) == ("optim", 4, 1e-3, {"epoch": 4.0})
    assert fact["keys"] == ["exp_avg", "exp_avg_sq", "step"]
    assert fact["model_loaded"] == 0
    assert (fact["optimizer_loaded"], fact["loaded_steps"]) == (whole, whole)


class Wrapper:
    """An optimizer inside an object of the program's, saved whole."""

    def __init__(self, optimizer):
        self.inner = optimizer


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_checkpoint_that_holds_the_optimizer_as_an_object(goes_on):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loss_of(model).backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optim": Wrapper(optimizer)}, file)
    file.seek(0)

    def program():
        checkpoint = torch.load(file, weights_only=False)
        again = net()
        again.load_state_dict(checkpoint["model"])
        wrapper = checkpoint["optim"]
        if goes_on:  # its parameters are exchanged, and its state by their place is kept
            wrapper.inner.param_groups[0]["params"] = list(again.parameters())
        else:
            wrapper.inner = torch.optim.Adam(again.parameters(), 1e-3)
        for i in range(3):
            wrapper.inner.zero_grad()
            loss_of(again, i).backward()
            wrapper.inner.step()

    fact = noted(program, key="resume")[-1]
    assert (fact["where"], fact["states"], fact["model_loaded"]) == ("optim.inner", 4, 0)
    assert (fact["optimizer_loaded"], fact["loaded_steps"]) == (goes_on, goes_on)


def scaled_loop(how: str):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def program():
        for i in range(5):
            optimizer.zero_grad()
            loss = loss_of(model, i)
            scaled = scaler.scale(loss)
            (loss if how == "discarded" else scaled + 0 if how == "sum" else scaled).backward()
            if how == "direct":
                optimizer.step()
                continue
            if how == "by_hand":
                for p in model.parameters():
                    p.grad.div_(64.0)
                optimizer.step()
                continue
            scaler.step(optimizer)
            scaler.update()

    return noted(program, key="scaler")[-1]


@pytest.mark.parametrize("how", ["right", "sum", "direct", "by_hand", "discarded"])
def test_use_of_a_scaler(how):
    fact = scaled_loop(how)
    assert fact["scaled"] == 5
    assert fact["used"] == (0 if how == "discarded" else 5)
    assert fact["discarded"] == (5 if how == "discarded" else 0)
    assert fact["direct"] == (5 if how == "direct" else 0)
    assert fact["mixed"] == 0


def test_a_loop_without_a_step_is_recorded_all_the_same():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def program():
        for i in range(20):
            optimizer.zero_grad()
            loss_of(model, i).backward()

    found = capture_run(program, model)
    assert len(found.steps) == 20
    assert found.scalars("loss")[3] == pytest.approx(float(loss_of(model, 3).detach()))
    fact = noted(program, key="unstepped")[-1]
    assert (fact["zeroed"], fact["backwards"], fact["moved"], fact["steps"]) == (20, 20, False, 0)


def test_updates_by_hand_are_no_missing_step():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)  # made only to clear

    def program():
        for i in range(20):
            optimizer.zero_grad()
            loss_of(model, i).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(0.1 * p.grad)

    assert noted(program, key="unstepped")[-1]["moved"] is True


def test_the_tools_stand_ins_are_gone_afterwards():
    before = [lr_scheduler.LRScheduler.step, DataLoader.__iter__, torch.load, nn.Module.load_state_dict]
    model = net()
    capture_run(lambda: loss_of(model).backward(), model)
    assert [lr_scheduler.LRScheduler.step, DataLoader.__iter__, torch.load, nn.Module.load_state_dict] == before
