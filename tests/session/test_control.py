"""The parts by hand: triggers, breakpoints, snapshots, manual steps."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.session.seeded_trainings import Mlp, vectors
from torch import nn
from torch.nn import functional as F

from neuraldbg import HookManager, NeuralDbg, NeuralDbgError, RingBuffer, TrainingHalted, TriggerEngine

if TYPE_CHECKING:
    from pathlib import Path

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("loss", "norms", "reason"),
    [
        (1.0, {"a": 1.0, "b": 2.0}, None),
        (NAN, {"a": 1.0}, "the loss is nan"),
        (-INF, {"a": 1.0}, "the loss is -inf"),
        (1.0, {"a": 1.0, "b": NAN, "c": 2.0}, "the gradient of layer 'b' is not finite"),
        (1.0, {"a": NAN, "b": 500.0}, "the gradient of layer 'a' is not finite"),
        (1.0, {"a": 500.0, "b": NAN}, "the gradient of layer 'b' is not finite"),
        (1.0, {"b": INF}, "the gradient of layer 'b' is not finite"),
        (1.0, {"a": 5.0, "b": 101.0}, "the gradient norm of layer 'b' is 101, above 100"),
        (4.0, {"a": 5.0}, "the loss 4 is 4.0 times its moving average 1"),
        (5.666e8, {}, "the loss 5.666e+08 is 5.7e8 times its moving average 1"),
        (None, {}, None),
    ],
)
def test_trigger_reasons(loss: float | None, norms: dict[str, float], reason: str | None) -> None:
    engine = TriggerEngine(grad_threshold=100.0, spike_factor=3.0)
    for _ in range(5):
        assert engine.check(1.0, {"a": 1.0}) is None
    assert engine.check(loss, norms) == reason


def test_a_spike_is_tested_before_it_is_learnt() -> None:
    engine = TriggerEngine(spike_factor=3.0)
    assert engine.check(1.0, {}) is None
    assert engine.check(30.0, {}) is not None
    assert engine.average == pytest.approx(0.9 + 3.0)
    assert engine.check(NAN, {}) is not None
    assert engine.average == pytest.approx(3.9)  # a NaN is no part of an average


def test_ring_buffer_keeps_the_last_steps_in_strict_json(tmp_path: Path) -> None:
    buffer = RingBuffer(capacity=3)
    norms = {"fc1": 0.0}
    for step in range(5):
        norms["fc1"] = NAN if step == 4 else float(step)  # one dictionary, reused by the loop
        buffer.add(step, norms, {"fc1": torch.tensor(INF)}, torch.tensor(float(step)))
    path = buffer.save_json(tmp_path / "new" / "dump.json", trigger_reason="why")
    found = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert [row["step"] for row in found["history"]] == [2, 3, 4]
    assert [row["grad_norms"]["fc1"] for row in found["history"]] == [2.0, 3.0, "NaN"]
    assert found["history"][0]["act_norms"] == {"fc1": "Infinity"}
    assert found["metadata"]["capacity"] == 3


def test_hook_manager_against_torch() -> None:
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    observer = HookManager(log_every=1).attach(model)
    outputs: dict[str, float] = {}
    for name in ("fc1", "fc2"):
        layer = getattr(model, name)
        layer.register_forward_hook(
            lambda m, a, out, name=name: outputs.update({name: float(out.detach().double().norm())})
        )
    for _ in range(3):
        x, y = vectors()
        observer.reset_step()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        assert observer.act_norms == pytest.approx(outputs, rel=1e-5)
        expected = {
            name: float(torch.cat([p.grad.flatten() for p in getattr(model, name).parameters()]).double().norm())
            for name in ("fc1", "fc2")
        }
        assert observer.grad_norms == pytest.approx(expected, rel=1e-5)
    observer.detach()
    with pytest.raises(NeuralDbgError, match=r"expected a torch\.nn\.Module"):
        HookManager().attach("model")  # type: ignore[arg-type]


def test_a_manual_optimizer_needs_capture_step() -> None:
    """Plain SGD by hand, no torch.optim.Optimizer anywhere."""
    torch.manual_seed(0)
    model = Mlp()
    losses, norms = [], []
    with NeuralDbg(model) as dbg:
        for step in range(30):
            x, y = vectors()
            loss = F.cross_entropy(model(x), y)
            model.zero_grad()
            loss.backward()
            norms.append(float(torch.cat([p.grad.flatten() for p in model.fc1.parameters()]).norm()))
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(0.1 * p.grad)
            dbg.capture_step(step)
            losses.append(float(loss.detach()))
    assert dbg.steps == 30
    run = dbg.record()
    assert run.scalar("loss").values.tolist() == pytest.approx(losses)
    assert dbg.get_gradient_history("fc1").values.tolist() == pytest.approx(norms, rel=1e-5)
    assert dbg.inspect("fc1", step=4).step == 4
    assert [e.kind for e in dbg.diagnose().events if e.kind == "unchanged_parameters"] == []
    ratios = run.scalar("update_ratio").values
    assert len(ratios) >= 29
    assert all(0 < r < 1 for r in ratios[1:])
    assert dbg.diagnose().verdict == "healthy", dbg.diagnose().summary


def test_capture_step_without_a_step_adds_none() -> None:
    model = Mlp()
    with NeuralDbg(model) as dbg:
        dbg.capture_step(0)
        dbg.capture_step()
        assert dbg.steps == 0
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = vectors()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        for _ in range(3):
            dbg.capture_step(0)
        assert dbg.steps == 1


def test_snapshots_are_opt_in_and_bounded() -> None:
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs: list[torch.Tensor] = []

    def run(**options: Any) -> NeuralDbg:
        inputs.clear()
        with NeuralDbg(model, **options) as dbg:
            for _ in range(10):
                x, y = vectors()
                inputs.append(x)
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        return dbg

    assert run().inspect("fc1").input is None
    one = 32 * (8 + 16 + 16) * 4  # input, output and gradient of fc1, in bytes
    dbg = run(snapshots=["fc1"], snapshot_bytes=3 * one)
    kept = [step for step in range(10) if dbg.inspect("fc1", step=step).input is not None]
    assert kept == [7, 8, 9]
    for step in kept:
        state = dbg.inspect("fc1", step=step)
        assert torch.equal(state.input, inputs[step])
        assert state.output.shape == state.gradient.shape == (32, 16)
        assert not state.output.requires_grad
    assert dbg.inspect("fc2").input is None


def test_breakpoints_are_hit_once_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hits: list[Any] = []
    debugger: list[int] = []
    monkeypatch.setattr("sys.breakpointhook", lambda *args, **kwargs: debugger.append(dbg.steps))
    with NeuralDbg(model) as dbg:
        dbg.add_breakpoint("nonfinite_loss", hits.append)
        dbg.add_breakpoint("nonfinite_loss")
        for step in range(12):
            x, y = vectors()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y) * (math.nan if step >= 6 else 1.0)
            loss.backward()
            optimizer.step()
    assert [event.first_step for event in hits] == [6]
    assert debugger == [7]


@pytest.mark.parametrize("strict", ["", "1"])
def test_what_an_action_of_the_user_raises_is_the_users(
    strict: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NEURALDBG_STRICT", strict)
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    others: list[Any] = []

    def broken(event: Any) -> None:
        raise ValueError("my own")

    with NeuralDbg(model, on_step=lambda step, _: 1 // (step.index - 3)) as dbg:
        dbg.add_breakpoint("nonfinite_loss", broken)
        dbg.add_breakpoint("nonfinite_loss", others.append)
        for step in range(12):
            x, y = vectors()
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) * (math.nan if step >= 6 else 1.0)).backward()
            optimizer.step()
    assert dbg.steps == 12
    assert [event.first_step for event in others] == [6]
    coverage = dbg.diagnose().run["coverage"]
    assert not coverage["errors"], coverage
    assert not [u for u in dbg.diagnose().unjudged if "fail" in u.reason]
    said = "the action of the breakpoint on 'nonfinite_loss', a function of the program, raised once, at step 6"
    assert any(note == f"{said}: ValueError: my own" for note in coverage["notes"]), coverage["notes"]
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "raised at step 6; the training goes on" in told
    assert "in broken" in told
    assert "user_calls.py" not in told
    assert told.count("ZeroDivisionError") == 1
    assert told.count("Traceback") == 2


def test_an_action_can_stop_the_training() -> None:
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def stop(event: Any) -> None:
        raise TrainingHalted(str(event), event.first_step)

    done = 0
    with pytest.raises(TrainingHalted, match="nonfinite loss"), NeuralDbg(model) as dbg:  # noqa: PT012
        dbg.add_breakpoint("nonfinite_loss", stop)
        for step in range(12):
            x, y = vectors()
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) * (math.nan if step >= 6 else 1.0)).backward()
            optimizer.step()
            done += 1
    assert done <= 7


def test_tied_names_and_parameters_as_layer_names() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model) as dbg:
        x, y = vectors()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        assert dbg.inspect("0.weight").layer == "0"
        assert dbg.inspect("Linear_2").layer == dbg.inspect("dense2").layer == dbg.inspect("linear2").layer == "1"


@pytest.mark.parametrize("clear_first", [False, True])
def test_capture_step_after_every_micro_batch_counts_the_optimizers_steps(clear_first: bool) -> None:
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model) as dbg:
        for micro in range(12):
            x, y = vectors()
            if clear_first and micro % 4 == 0:
                optimizer.zero_grad()
            (F.cross_entropy(model(x), y) / 4).backward()
            if micro % 4 == 3:
                optimizer.step()
                if not clear_first:
                    optimizer.zero_grad()
            dbg.capture_step(micro)
    assert dbg.steps == 3
    assert dbg.record().scalar("backwards").values.tolist() == [4.0] * 3
    assert dbg.inspect("fc1", step=2).step == 2
    with pytest.raises(LookupError, match="the loop's own 11 is step 2"):
        dbg.inspect("fc1", step=11)
