"""The public API as a user's type checker sees it. Never run: ``make types`` fails if a name or a type is lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neuraldbg import (
    Diagnosis,
    Event,
    HookManager,
    Hypothesis,
    NeuralDbg,
    NeuralDbgError,
    RingBuffer,
    Run,
    TrainingHalted,
    TriggerEngine,
)


def front_door(model: nn.Module, optimizer: torch.optim.Optimizer) -> Diagnosis:
    with NeuralDbg(model, optimizer, out=Path("run"), thresholds={"vanishing_gradients": {"floor": 1e-9}}) as dbg:
        dbg.capture_step(0)
        bad: bool = dbg.has_vanishing_gradients() or dbg.has_exploding_gradients()
        steps: list[int] = dbg.get_gradient_history("fc1").steps.tolist()
        dbg.inspect_layer("linear1")
        dbg.inspect(layer_name="conv1", step=42)
        dbg.analyze_gradient_health()
        dbg.add_breakpoint("loss_spike", on_event)
    first: Hypothesis = dbg.explain_failure()[0]
    all_of_them: list[Hypothesis] = dbg.get_causal_hypotheses()
    chained: bool = bool(dbg.trace_causal_chain("vanishing_gradients"))
    dbg.detect_coupled_failures()
    print(bad, steps, first.confidence, first.remedy.code, all_of_them, chained)
    return dbg.diagnose()


def on_event(event: Event) -> None:
    print(event.kind, event.layer, event.first_step)


def halting(model: nn.Module) -> None:
    dbg = NeuralDbg(model, halt=TriggerEngine(grad_threshold=50.0, spike_factor=2.0))
    dbg.start()
    try:
        model(torch.ones(1)).backward()
    except TrainingHalted as halted:
        diagnosis: Diagnosis | None = halted.diagnosis
        print(halted.reason, halted.step, diagnosis)
    finally:
        dbg.stop()


def parts(model: nn.Module, loss: float) -> str | None:
    hooks = HookManager(log_every=10)
    hooks.attach(model)
    grads: Mapping[str, float] = hooks.grad_norms
    acts: Mapping[str, float] = hooks.act_norms
    hooks.reset_step()
    ring = RingBuffer(capacity=100)
    ring.add(0, grads, acts, loss)
    ring.save_json("crash.json", trigger_reason="spike")
    reason: str | None = TriggerEngine(grad_threshold=100.0, spike_factor=3.0).check(loss, grads)
    return reason


def saved(path: str) -> dict[str, Any]:
    try:
        return Run.load(path).diagnose().to_dict()
    except NeuralDbgError as error:
        return {"error": str(error)}
