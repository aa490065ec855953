"""The examples of the source document on the toolbox (004), translated from Rust line by line."""

from __future__ import annotations

import gc
import json

import numpy as np
import pytest
import torch
from torch import nn

from neuraldbg import (
    DebugConfig,
    DebugSession,
    DebugVisualizer,
    HookAction,
    HookBuilder,
    HookTrigger,
    ModelArchitectureInfo,
    ModelPerformanceMetrics,
    TerminalVisualizer,
    VisualizationConfig,
    debug_session,
)


@pytest.fixture(autouse=True)
def forgotten():
    """The document stops few of its sessions: those that are forgotten end by themselves."""
    yield
    gc.collect()


def test_basic_usage():
    session = debug_session()
    session.start()

    tensor = np.linspace(0.0, 1.0, 1000)
    tensor_id = session.tensor_inspector.inspect_tensor(tensor, "my_tensor", "layer_1", "forward")

    gradients = [0.01, 0.02, 0.015, 0.008]
    session.gradient_debugger.record_gradient_flow("layer_1", gradients)

    report = session.stop()
    told = report.summary()
    assert told.startswith("INCONCLUSIVE")
    assert "layer_1" in told
    stats = session.tensor_inspector.get_tensor_info(tensor_id).stats
    assert stats.mean == np.mean(tensor)
    assert stats.shape == (1000,)
    assert report.gradients.overall_health == "not enough data"
    assert np.isclose(report.gradients.layers["layer_1"].norm, np.linalg.norm(gradients))


def test_advanced_configuration(tmp_path):
    config = DebugConfig(
        enable_tensor_inspection=True,
        enable_gradient_debugging=True,
        enable_model_diagnostics=True,
        enable_visualization=True,
        max_tracked_tensors=1000,
        max_gradient_history=200,
        output_dir=tmp_path / "debug_output",
        sampling_rate=0.1,
    )
    session = DebugSession(config)
    for step in range(12):
        session.record_step(step, loss=1 / (1 + step), gradients={"fc1.weight": np.full((3, 2), 0.1)})
    session.stop()
    assert (tmp_path / "debug_output" / "rank0.ndbg").exists()
    assert list((tmp_path / "debug_output" / "plots").glob("*.png"))


def test_debugging_hooks():
    session = debug_session()
    hook = (
        HookBuilder("Layer Monitor")
        .trigger(HookTrigger.EveryForward)
        .action(HookAction.InspectTensor)
        .layer_patterns(["attention.*"])
        .max_executions(100)
        .build()
    )
    session.hooks.register_hook(hook)

    tensor_data = [1.0, 2.0, 3.0, 4.0]
    results = session.hooks.execute_hooks("attention_layer_1", tensor_data, [2, 2], True, None)
    assert len(results) == 1
    assert results[0].layer == "attention_layer_1"
    assert results[0].shape == (2, 2)
    assert results[0].statistics["mean"] == 2.5
    assert session.hooks.execute_hooks("mlp_1", tensor_data, [2, 2], True, None) == []
    for _ in range(150):
        session.hooks.execute_hooks("attention_layer_1", tensor_data, [2, 2], True, None)
    assert hook.executions == 100


def test_visualization(tmp_path):
    config = VisualizationConfig(output_directory=tmp_path / "plots")
    visualizer = DebugVisualizer(config)

    values = [1.0, 2.0, 1.5, 3.0, 2.5, 1.8, 2.2]
    visualizer.plot_tensor_distribution("weights", values, 10)

    steps = [0, 1, 2, 3, 4]
    gradients = [0.1, 0.08, 0.06, 0.04, 0.03]
    visualizer.plot_gradient_flow("layer1", steps, gradients)

    plot_names = visualizer.get_plot_names()
    dashboard = visualizer.create_dashboard(plot_names)
    assert dashboard.exists()
    assert len(plot_names) == 2


def test_tensor_inspector():
    session = debug_session()
    my_tensor = torch.nn.Linear(4, 3).weight
    tensor_id = session.tensor_inspector.inspect_tensor(my_tensor, "layer_weights", "linear_1", "parameter")
    info = session.tensor_inspector.get_tensor_info(tensor_id)
    assert info.stats.l2 == np.float64(np.linalg.norm(my_tensor.detach().numpy().astype(np.float64)))
    assert "linear_1" in {layer.path for layer in session.stop().run.layout.layers}


def test_gradient_debugger():
    session = debug_session()
    draw = np.random.default_rng(0)
    for _ in range(30):
        gradient_values = draw.normal(0, 0.1, (8, 4))
        session.gradient_debugger.record_gradient_flow("transformer_block_0", gradient_values)
    analysis = session.gradient_debugger.analyze_gradient_flow()
    # The gradient that is recorded again has ended the step before: the 30th is of the step that is open.
    assert analysis.overall_health == "healthy"
    assert analysis.layers["transformer_block_0"].records == 30


def test_model_diagnostics():
    session = debug_session()
    arch_info = ModelArchitectureInfo(
        total_parameters=125_000_000, trainable_parameters=125_000_000, model_size_mb=500.0, layer_count=24
    )
    session.model_diagnostics.record_architecture(arch_info)
    metrics = ModelPerformanceMetrics(training_step=100, loss=0.5, accuracy=0.85, learning_rate=1e-4)
    session.model_diagnostics.record_performance(metrics)

    run = session.stop().run
    assert run.scalar("loss").steps.tolist() == [100]
    assert run.metric("accuracy").values.tolist() == [0.85]
    assert run.fact("architecture")["total_parameters"] == 125_000_000


def test_performance_profiler():
    session = debug_session()
    profiler = session.profiler
    profiler.start_timer("layer_forward")
    duration = profiler.end_timer("layer_forward")
    assert duration >= 0

    forward_time, backward_time, memory_usage, parameter_count = 0.2, 0.5, 4096, 1024
    profiler.record_layer_execution(
        "transformer_block_0",
        "TransformerBlock",
        forward_time,
        backward_time,
        memory_usage,
        parameter_count,
    )
    profile = session.stop().profile
    assert [layer.layer for layer in profile.timing.layers] == ["transformer_block_0"]
    assert profile.timing.layers[0].forward_s == 0.2


def test_terminal_visualization():
    terminal_viz = TerminalVisualizer(80, 24)
    values = [1.0, 2.0, 1.5, 3.0]
    histogram = terminal_viz.ascii_histogram(values, 10)
    x_values, y_values = [0, 1, 2], [2.3, 1.7, 0.4]
    line_plot = terminal_viz.ascii_line_plot(x_values, y_values, "Training Loss")
    assert "4 values" in histogram
    assert "Training Loss" in line_plot


def test_integration_with_training(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    inputs = torch.randn(400, 8)
    labels = inputs[:, :4].argmax(dim=1)
    train_dataloader = list(zip(inputs.split(40), labels.split(40), strict=True))
    num_epochs = 20

    session = debug_session(output_dir=tmp_path / "run")
    session.start()
    total = 0
    for _ in range(num_epochs):
        for batch_inputs, batch_labels in train_dataloader:
            output = model(batch_inputs)
            session.tensor_inspector.inspect_tensor(output, "model_output", None, "forward")

            loss = criterion(output, batch_labels)
            optimizer.zero_grad()
            loss.backward()

            for name, param in model.named_parameters():
                if param.grad is not None:
                    session.gradient_debugger.record_gradient_flow(name, param.grad)

            if total % 10 == 0:
                metrics = ModelPerformanceMetrics(
                    training_step=total,
                    loss=loss.item(),
                    accuracy=float((output.argmax(dim=1) == batch_labels).float().mean()),
                    learning_rate=optimizer.param_groups[0]["lr"],
                    batch_size=len(batch_inputs),
                )
                session.model_diagnostics.record_performance(metrics)
            optimizer.step()
            total += 1
    report = session.stop()

    assert report.run.steps == total == 200
    assert report.diagnosis.verdict in ("healthy", "inconclusive"), report.summary()
    assert report.gradients.overall_health == "healthy"
    loss = report.run.scalar("loss")
    assert loss.steps.tolist() == list(range(0, 200, 10))
    assert report.health.dynamics.state == "falling", str(report.health)
    for suffix in (".html", ".md", ".json"):
        report.save(tmp_path / f"report{suffix}")
    assert "model_output" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["steps"] == 200
