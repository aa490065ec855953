"""A profile in exports: slices of a typical step in a Perfetto trace, facts in the JSON documents."""

from __future__ import annotations

import itertools
import json

import pytest
from tests.explain.run_builder import Build
from tests.show.made_profiles import HEALTHY, MB, profiled, timing

from neuraldbg.export import export
from neuraldbg.nouns.facts.footprint import FootprintFact
from neuraldbg.nouns.facts.growth import GrowthFact
from neuraldbg.nouns.facts.timing import TimingFact
from neuraldbg.saved import Run

PATHS = ("net", "net.a", "net.b", "head")


@pytest.fixture(scope="module")
def run():
    return profiled(PATHS)


@pytest.fixture(scope="module")
def trace(run, tmp_path_factory):
    path = export(run, HEALTHY, tmp_path_factory.mktemp("trace") / "trace.json", "perfetto")
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def slices(trace, thread):
    (pid,) = {e["pid"] for e in trace if e["name"] == "process_name" and e["args"]["name"] == "profile"}
    return [e for e in trace if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, thread)]


def test_a_single_sampled_step_is_said_to_be_one(tmp_path):
    build = Build().fact("timing", 9, **timing(PATHS, steps=1))
    path = export(build.build(), HEALTHY, tmp_path / "one.json", "perfetto")
    found = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    assert all(e["args"]["caution"].startswith("Only one step was sampled") for e in slices(found, 0))
    names = [e["args"]["name"] for e in found if e["name"] == "thread_name"]
    assert "parts of a sampled step, which says little of others" in names


def test_parts_of_the_step_follow_one_another_and_end_where_the_last_sampled_step_did(run, trace):
    parts = slices(trace, 0)
    fact = timing(PATHS)
    assert [e["name"] for e in parts] == ["data loader", "forward", "backward", "optimizer", "other"]
    names = ("data_s", "forward_s", "backward_s", "optimizer_s", "other_s")
    assert [e["dur"] for e in parts] == pytest.approx([1e6 * fact[name] for name in names])
    for one, other in itertools.pairwise(parts):
        assert other["ts"] == pytest.approx(one["ts"] + one["dur"])
    end = parts[-1]["ts"] + parts[-1]["dur"]
    assert end == pytest.approx(1e6 * max(run.history.time[fact["last"]], fact["step_s"]))


def test_layers_are_nested_by_their_paths_and_last_as_long_as_they_took(trace):
    fact = {layer["layer"]: layer for layer in timing(PATHS)["layers"]}
    for part, key in (("forward", "own_forward_s"), ("backward", "own_backward_s")):
        found = {e["name"]: (e["ts"], e["ts"] + e["dur"]) for e in slices(trace, 1) if e["cat"] == part}
        assert set(found) == set(PATHS)
        for path, (start, end) in found.items():
            inside = sum(one[key] for name, one in fact.items() if name == path or name.startswith(f"{path}."))
            assert end - start == pytest.approx(1e6 * inside)
        for inner in ("net.a", "net.b"):
            assert found["net"][0] <= found[inner][0] + 1e-6
            assert found[inner][1] <= found["net"][1] + 1e-6
        (whole,) = [e for e in slices(trace, 0) if e["name"] == part]
        assert min(start for start, _ in found.values()) == pytest.approx(whole["ts"])
    assert slices(trace, 1)[0]["args"]["timing"]["outputs"] == ["float32[32, 64]"]


def test_memory_over_time_is_a_counter(trace):
    counted = [e["args"]["value"] for e in trace if e["ph"] == "C" and e["name"] == "resident"]
    assert counted == pytest.approx([300 * MB + 1.6 * MB * i for i in range(60)])


def test_a_session_document_reads_back_to_the_same_profile(run, tmp_path):
    path = export(run, HEALTHY, tmp_path / "run.json", "session")
    back = Run.load(path)
    for kind in (TimingFact, FootprintFact, GrowthFact):
        assert back.known(kind) == run.known(kind)
        assert back.known(kind) is not None
    assert back.scalar("resident").values.tolist() == run.scalar("resident").values.tolist()


def test_a_run_without_a_profile_has_no_such_process(tmp_path):
    path = export(profiled(parts=()), HEALTHY, tmp_path / "trace.json", "perfetto")
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    assert not [e for e in events if e["name"] == "process_name" and e["args"]["name"] == "profile"]
