"""The programs of the documents that this system was asked for in, as close to verbatim as they run."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg.errors import UnknownName

if TYPE_CHECKING:
    from pathlib import Path

SENTENCE = re.compile(
    r"^[A-Z][\w -]+ originated in layer '[\w.]+' at step \d+, likely due to .+ \(confidence: [01]\.\d\d\)$", re.DOTALL
)


class Deep(nn.Module):
    """Sigmoid after sigmoid: its gradients vanish on the way to the front."""

    def __init__(self, depth: int = 12) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(10 if i == 0 else 16, 16) for i in range(depth))
        self.out = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.hidden:
            x = torch.sigmoid(layer(x))
        return self.out(x)


def data(n: int = 40) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    xs = [torch.randn(32, 10) for _ in range(n)]
    return [(x, x.sum(1, keepdim=True)) for x in xs]


def test_the_event_tracer() -> None:  # 000
    dataloader = data()
    # fmt: off
    from neuraldbg import NeuralDbg

    # Your existing model and training setup
    model = nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.MSELoss()

    # Wrap your training loop
    with NeuralDbg(model) as dbg:
        for step, (inputs, targets) in enumerate(dataloader):
            optimizer.zero_grad()

            outputs = model(inputs)
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()

            # Capture state after each training step
            dbg.capture_step(step)

            # Check for gradient issues
            if dbg.has_vanishing_gradients():
                pytest.fail("this model is healthy")
    # fmt: on
    assert dbg.steps == len(dataloader)  # never counted twice
    assert not dbg.has_exploding_gradients()
    state = dbg.inspect_layer("linear1")
    assert (state.layer, state.step) == ("0", 39)
    assert dbg.inspect_layer("fc2").layer == dbg.inspect_layer("Dense_2").layer == "2"
    assert dbg.inspect(layer_name="linear1", step=7).step == 7
    gradients = dbg.get_gradient_history("fc1")
    assert gradients.steps.tolist() == list(range(40))
    health_report = dbg.analyze_gradient_health()
    assert health_report.healthy
    assert health_report.layers == {"0": "healthy", "2": "healthy"}


def test_the_event_tracer_stops_at_vanishing_gradients() -> None:  # 000
    from neuraldbg import NeuralDbg

    torch.manual_seed(0)
    model = Deep()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        for step, (inputs, targets) in enumerate(data()):
            optimizer.zero_grad()
            F.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            dbg.capture_step(step)
            if dbg.has_vanishing_gradients():
                gradient_info = dbg.inspect_layer("linear1")
                break
        else:
            pytest.fail("not seen")
        report = dbg.analyze_gradient_health()
    assert gradient_info.layer == "hidden.0"
    assert gradient_info.statistics["param_grad/weight"]["norm"] < 1e-6
    assert not report.healthy
    assert report.layers["hidden.0"] == "vanishing"
    assert report.layers["out"] == "healthy"


def test_numbers_are_those_of_torch() -> None:
    """History, inspect and capture_step against norms that the loop computes itself."""
    from neuraldbg import NeuralDbg

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    expected, activations = [], []
    with NeuralDbg(model, snapshots=["0"]) as dbg:
        for step in range(100, 110):  # the loop's own count, resumed from a checkpoint
            x, y = torch.randn(8, 1, 8, 8), torch.randint(3, (8,))
            optimizer.zero_grad()
            out = model(x)
            F.cross_entropy(out, y).backward()
            grads = [p.grad for p in model[0].parameters()]
            expected.append(float(torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads]).double())))
            activations.append(float(torch.linalg.vector_norm(out.detach().double())))
            optimizer.step()
            dbg.capture_step(step)
    assert dbg.get_gradient_history("conv1").values.tolist() == pytest.approx(expected, rel=1e-5)
    assert dbg.get_gradient_history("conv1").steps.tolist() == list(range(10))  # as events and hypotheses count
    state = dbg.inspect(layer_name="conv1", step=3)
    assert state.step == 3
    weight_and_bias = (state.statistics[f"param_grad/{name}"]["norm"] ** 2 for name in ("weight", "bias"))
    assert sum(weight_and_bias) ** 0.5 == pytest.approx(expected[3], rel=1e-5)
    assert dbg.inspect("fc1", step=5).statistics["activation"]["norm"] == pytest.approx(activations[5], rel=1e-5)
    assert state.input.shape == (8, 1, 8, 8)
    assert state.output.shape == state.gradient.shape == (8, 4, 6, 6)
    with pytest.raises(LookupError, match=r"step 999 is not recorded: steps 0 to 9 are$"):
        dbg.inspect("conv1", step=999)
    with pytest.raises(LookupError, match="step 103 is not recorded: steps 0 to 9 are; the loop's own 103 is step 3"):
        dbg.inspect("conv1", step=103)


def test_the_causal_engine(capsys: pytest.CaptureFixture[str]) -> None:  # 001
    from neuraldbg import NeuralDbg

    torch.manual_seed(0)
    model = Deep()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.MSELoss()
    # fmt: off
    # Wrap your training loop
    with NeuralDbg(model) as dbg:
        for step, (inputs, targets) in enumerate(data(80)):  # noqa: B007 (verbatim)
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
            # Events are extracted automatically

    # After training failure, query for explanations
    explanations = dbg.explain_failure()
    print(explanations[0])  # noqa: T201 (verbatim)
    # Get ranked causal hypotheses for the failure
    hypotheses = dbg.get_causal_hypotheses()

    # Query specific causal chains
    chain = dbg.trace_causal_chain("vanishing_gradients")

    # Check for coupled failures
    couplings = dbg.detect_coupled_failures()
    # fmt: on
    said = capsys.readouterr().out.strip()
    assert SENTENCE.match(said), said
    assert said.startswith("Gradient vanishing originated in layer 'hidden.")
    assert hypotheses == explanations
    assert [h.rank for h in hypotheses] == list(range(1, len(hypotheses) + 1))
    confidences = [h.confidence for h in hypotheses]
    assert all(0 < c <= 1 for c in confidences)
    assert hypotheses[0].cause in ("vanishing_depth", "saturating_activation", "init_scale_wrong")
    assert chain
    for name in ("vanishing_gradients", "gradient vanishing", hypotheses[0].cause):
        assert dbg.trace_causal_chain(name), name
    with pytest.raises(UnknownName, match="no such failure"):
        dbg.trace_causal_chain("no such failure")
    assert isinstance(couplings, list)
    event = next(e for e in dbg.diagnose().events if e.kind == "vanishing_gradients")
    assert (event.transition, event.first_step) == ("gradient_health", 0)
    assert 0 < event.confidence <= 1


class Doomed(nn.Module):
    """A ConvNet with what the flight recorder attaches to, and an in-place ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3)
        self.fc = nn.Linear(8 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x), inplace=True)
        return self.fc(F.relu(self.conv2(x), inplace=True).flatten(1))


def test_the_flight_recorder(tmp_path: Path) -> None:  # 003
    torch.manual_seed(0)
    dump = tmp_path / "crash_dump.json"
    criterion = nn.CrossEntropyLoss()
    dataloader = [(torch.randn(16, 1, 8, 8), torch.randint(10, (16,))) for _ in range(400)]
    # fmt: off
    from neuraldbg import HookManager, RingBuffer, TriggerEngine

    # 1. Setup Your Model
    model = Doomed()
    optimizer = torch.optim.SGD(model.parameters(), lr=100.0)

    # 2. Attach Observer (The Eyes)
    # log_every=10 reduces overhead by only sampling every 10th step
    observer = HookManager(log_every=10)
    observer.attach(model)

    # 3. Setup Recorder & Triggers (The Memory & Brain)
    buffer = RingBuffer(capacity=100)
    triggers = TriggerEngine(grad_threshold=100.0, spike_factor=3.0)

    # 4. Training Loop
    for step, (batch, target) in enumerate(dataloader):
        # Reset stats at the start of the step
        observer.reset_step()

        # Standard Forward/Backward
        loss = criterion(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        # --- Neural Observer Logic ---
        # 1. Capture the step data to the buffer
        buffer.add(step, observer.grad_norms, observer.act_norms, loss.item())

        # 2. Check for failure signals
        fail_reason = triggers.check(loss.item(), observer.grad_norms)
        if fail_reason:
            # Dump the last 100 steps to disk for analysis
            buffer.save_json(dump, trigger_reason=fail_reason)
            break
    # fmt: on
    observer.detach()
    assert fail_reason
    found = json.loads(dump.read_text(), parse_constant=lambda name: pytest.fail(f"bare {name}"))
    assert found["metadata"].keys() == {"capacity", "trigger_reason", "dump_timestamp", "captured_steps"}
    assert found["metadata"]["trigger_reason"] == fail_reason
    assert found["metadata"]["captured_steps"] == len(found["history"]) == step + 1
    assert found["history"][0].keys() == {"step", "timestamp", "loss", "grad_norms", "act_norms"}
    assert found["history"][0]["grad_norms"].keys() == {"conv1", "conv2", "fc"}
    assert found["history"][0]["act_norms"].keys() == {"conv1", "conv2", "fc"}
    for row in found["history"]:  # gradients are never blind between logged steps, activations are
        assert bool(row["grad_norms"])
        assert bool(row["act_norms"]) == (row["step"] % 10 == 0)
