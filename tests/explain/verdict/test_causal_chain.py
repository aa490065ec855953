"""The causal chain: cause first, then time and data flow, then the symptom."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.explain.run_builder import Build, falling
from tests.explain.stories import STORIES
from tests.explain.test_mostly_light_runs import lightened

from neuraldbg.errors import UnknownName
from neuraldbg.explain import diagnose, trace
from neuraldbg.explain.evidence.case import Case
from neuraldbg.explain.verdict.causal_chain import build as build_chain
from neuraldbg.nouns import Event, Hypothesis, RunRecord


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


def test_layers_of_one_event_are_named_once_each():
    build = STORIES["nonfinite_input"].fires()
    build.events.clear()
    sites = ["param/fc1.weight", "param/fc1.bias", "update/fc1.weight", "param/fc2.weight", "activation/fc3"]
    build.event("nonfinite_parameter", 1, "fc1", affected=sites)
    labels = [node.label for node in diagnose(build.build()).chain.nodes]
    assert "nonfinite parameter in fc1, fc2 and fc3" in labels


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
    assert by_kind == trace(run, found, "VANISHING") == trace(run, found, "Vanishing-Gradients")
    assert trace(run, found, found.hypotheses[0]) == by_cause
    assert [str(link) for link in by_cause] == str(by_cause).split("\n")[:1] + [
        line.removeprefix("-> ").rpartition(" (")[0] for line in str(by_cause).split("\n")[1:]
    ]
    assert len(by_cause) == len(list(by_cause)) == len(by_cause.nodes) > 1


def test_trace_takes_layers():
    run = STORIES["vanishing_depth"].fires().build()
    found = diagnose(run)
    (event,) = [e for e in run.events if e.kind == "vanishing_gradients"]
    chain = trace(run, found, str(event.layer))
    assert chain[0].label == "vanishing_depth"
    assert chain[-1].role == "symptom"
    assert any(node.layer == event.layer and node.role == "event" for node in chain), str(chain)
    assert chain == trace(run, found, str(event.layer).upper())


def test_trace_of_what_did_not_happen_is_empty_and_says_so():
    run = STORIES["vanishing_depth"].fires().build()
    for name in ("exploding_gradients", "double_softmax", "loss divergence"):
        chain = trace(run, diagnose(run), name)
        assert not chain
        assert len(chain) == 0
        assert str(chain) == f"no chain: nothing about {name} was found in this run"
        with pytest.raises(IndexError, match="no chain"):
            chain[0]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("explding_gradients", "exploding_gradients"),
        ("lr_to_high", "lr_too_high"),
        ("high lr", "lr_too_high"),
        ("", ""),
    ],
)
def test_unknown_names_come_with_the_nearest(name, near):
    run = STORIES["vanishing_depth"].fires().build()
    with pytest.raises(UnknownName) as caught:
        trace(run, diagnose(run), name)
    assert near in " ".join(caught.value.suggestions)
    assert str(caught.value).startswith(f"no kind of event, cause, failure or layer is called {name!r}.")


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


def test_a_loss_that_breaks_stands_before_what_follows_from_it():
    events = (("loss_spike", 1, ""), ("loss_divergence", 3, ""), ("dead_units", 6, "relu"))
    run = STORIES["lr_too_high"].fires().build()
    made = [Event(kind, "x", step, 59, layer or None, confidence=0.95) for kind, step, layer in events]
    found = diagnose(replace(run, events=tuple(made)))
    assert found.verdict == "failing"
    steps = [node.step for node in found.chain if node.step is not None]
    assert steps == sorted(steps)
    assert [node.label for node in found.chain].count("loss divergence") == 1


def ended(build: Build, last: int) -> RunRecord:
    """Return a run whose events ended at a step."""
    run = build.build()
    return replace(run, events=tuple(replace(event, last_step=last) for event in run.events))


def lightly(build: Build, unread: range) -> Case:
    """Return the case of a run in whose steps ``unread`` only scalars were read."""
    return Case(lightened(ended(build, 30), set(range(60)) - set(unread)))


def late(step: int) -> Hypothesis:
    return Hypothesis("bad_batch", "data", 0.9, "x", step=step, explains=("gradient_spike",))


def test_a_cause_that_could_only_be_read_after_its_first_effect_has_no_step():
    spiked = Build(steps=60).loss(falling(60)).event("gradient_spike", 20)
    case = lightly(spiked, range(17, 24))
    assert [node.step for node in build_chain(case, late(24)).nodes] == [None, 20]
    assert [node.step for node in build_chain(case, late(20)).nodes] == [20, 20]


def test_a_cause_that_was_not_there_at_its_effect_keeps_its_step():
    spiked = Build(steps=60).loss(falling(60)).event("gradient_spike", 20)
    assert [node.step for node in build_chain(lightly(spiked, range(40, 50)), late(24)).nodes] == [24, 20]


def test_a_divergence_that_came_back_says_so():
    losses = np.where((np.arange(60) >= 20) & (np.arange(60) < 26), 4000.0, falling(60))
    details = {"best": 1.5, "level": 4000.0}
    run = Build(steps=60).loss(losses).event("loss_divergence", 20, **details)
    hypothesis = Hypothesis("bad_batch", "data", 0.9, "x", step=20, explains=("loss_divergence",))
    assert [node.label for node in build_chain(Case(ended(run, 25)), hypothesis).nodes][1:] == [
        "loss divergence up to step 25"
    ]
    lasting = Build(steps=60).loss(np.where(np.arange(60) >= 20, 4000.0, falling(60)))
    lasting.event("loss_divergence", 20, **details)
    assert "up to" not in str(build_chain(Case(ended(lasting, 50)), hypothesis))


def test_a_spike_that_lasts_is_said_once():
    run = Build(steps=60).loss(falling(60)).event("loss_spike", 20).event("loss_divergence", 20).event("loss_spike", 50)
    hypothesis = replace(late(20), explains=("loss_spike", "loss_divergence"))
    labels = [node.label for node in build_chain(Case(run.build()), hypothesis).nodes if node.role == "event"]
    assert labels == ["loss divergence", "loss spike"]
