"""The causal chain: cause first, then time and data flow, then the symptom."""

from __future__ import annotations

import subprocess
import sys

from tests.explain.run_builder import Build
from tests.explain.stories import STORIES

from neuraldbg.explain import diagnose, trace


def test_order_is_cause_then_data_flow_then_symptom():
    chain = diagnose(STORIES["nonfinite_input"].fires().build()).chain
    assert [node.role for node in chain.nodes] == ["cause", *["event"] * 5, "symptom"]
    assert [node.id.split(":")[1] for node in chain.nodes[1:-1]] == [
        "nonfinite_input",
        "nonfinite_activation",
        "nonfinite_loss",
        "nonfinite_gradient",
        "nonfinite_parameter",
    ]
    assert [edge.why for edge in chain.edges] == ["cause", *["data flow"] * 4, "time"]
    assert [(edge.source, edge.target) for edge in chain.edges] == [
        (a.id, b.id) for a, b in zip(chain.nodes[:-1], chain.nodes[1:], strict=True)
    ]


def test_gradients_begin_at_the_loss_and_activations_at_the_input():
    build = STORIES["lr_too_high"].fires()
    build.events.clear()
    for layer in ("fc1", "fc2", "fc3"):
        build.event("exploding_gradients", 1, layer).event("activation_scale", 1, layer)
    nodes = {node.id.split(":")[1]: node for node in diagnose(build.build()).chain.nodes if node.role == "event"}
    assert nodes["exploding_gradients"].layer == "fc3"
    assert nodes["activation_scale"].layer == "fc1"
    assert nodes["exploding_gradients"].label == "exploding gradients in fc3, fc2 and fc1"


def test_time_comes_before_data_flow():
    chain = diagnose(STORIES["lr_too_high"].fires().build()).chain
    steps = [node.step for node in chain.nodes if node.role == "event"]
    assert steps == sorted(steps)


def test_trace_takes_causes_failures_and_kinds():
    run = STORIES["vanishing_depth"].fires().build()
    found = diagnose(run)
    by_cause = trace(run, found, "vanishing_depth")
    assert by_cause == trace(run, found, "Gradient vanishing") == found.chain
    by_kind = trace(run, found, "vanishing_gradients")
    assert by_kind.nodes[0].id == "cause:vanishing_depth"
    assert any("vanishing_gradients" in node.id for node in by_kind.nodes)
    assert not trace(run, found, "no such thing")


def test_a_healthy_run_has_no_chain():
    assert not diagnose(Build().build()).chain


def test_explain_needs_no_torch():
    code = (
        "import sys, types, importlib.util, pathlib\n"
        "spec = importlib.util.find_spec('neuraldbg')\n"
        "package = types.ModuleType('neuraldbg'); package.__path__ = list(spec.submodule_search_locations)\n"
        "sys.modules['neuraldbg'] = package\n"
        "from neuraldbg.explain import diagnose\n"
        "from neuraldbg.nouns import RunRecord\n"
        "diagnose(RunRecord())\n"
        "assert 'torch' not in sys.modules, 'explain imports torch'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
