"""The trace against the Trace Event Format, as it is published, and against the record."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from tests.export import record_oracle

from neuraldbg.export import Selection, export
from neuraldbg.nouns import STATS

NUMBER = (int, float)
FIELDS = {
    # phase: fields that must be there with their types, beside name, ph, pid and tid
    "M": {"args": dict},
    "X": {"ts": NUMBER, "dur": NUMBER, "cat": str, "args": dict},
    "C": {"ts": NUMBER, "args": dict},
    "i": {"ts": NUMBER, "s": str, "cat": str, "args": dict},
    "b": {"ts": NUMBER, "cat": str, "id": str, "args": dict},
    "e": {"ts": NUMBER, "cat": str, "id": str},
}
METADATA = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}
METADATA |= {"thread_sort_index": "sort_index"}


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


@pytest.fixture(scope="module")
def trace(run, diagnosis, tmp_path_factory):
    path = export(run, diagnosis, tmp_path_factory.mktemp("trace") / "trace.json", "perfetto")
    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def of(trace, phase):
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def steps_of(trace):
    """The slices of the training: those of the profile are a typical step, in a process of its own."""
    return [event for event in of(trace, "X") if event["cat"] in {"step", "steps"}]


def test_every_event_is_one_of_the_format(trace):
    assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert trace["displayTimeUnit"] in {"ms", "ns"}
    for event in trace["traceEvents"]:
        wanted = {"name": str, "ph": str, "pid": int, "tid": int, **FIELDS[event["ph"]]}
        assert set(event) == set(wanted), event
        for field, types in wanted.items():
            assert isinstance(event[field], types), event
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, NUMBER) and math.isfinite(value) for value in event["args"].values())
            assert event["args"]
        if event["ph"] == "i":
            assert event["s"] in {"g", "p", "t"}
        if event["ph"] == "M":
            assert list(event["args"]) == [METADATA[event["name"]]]
    begun = [(event["cat"], event["id"], event["name"]) for event in of(trace, "b")]
    assert sorted(begun) == sorted((event["cat"], event["id"], event["name"]) for event in of(trace, "e"))
    assert len(set(begun)) == len(begun)


def test_slices_of_a_thread_do_not_overlap(trace):
    threads = {}
    for event in steps_of(trace):
        threads.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert set(threads) == {0, 1}
    for spans in threads.values():
        assert all(end <= begin + 1e-3 for (_, end), (begin, _) in pairwise(spans))
    names = {e["tid"]: e["args"]["name"] for e in of(trace, "M") if e["name"] == "thread_name" and e["pid"] == 1}
    assert (names[0], names[1]) == ("optimizer 0 (Adam)", "optimizer 1 (SGD)")


def test_steps_are_slices_at_their_real_times(run, trace):
    history = run.history
    own = [at for at in range(len(history)) if record_oracle.scalars(run, at)]
    slices = steps_of(trace)
    assert len(slices) == len(own)
    for event, at in zip(slices, own, strict=True):
        values, width = record_oracle.scalars(run, at), int(history.width[at])
        assert event["args"]["step"] == history.steps[at]
        assert event["args"]["width"] == width
        for name, value in values.items():
            assert event["args"][name] == ("NaN" if math.isnan(value) else value)
        if width == 1:
            assert event["name"] == f"step {history.steps[at]}"
            assert (event["ts"] + event["dur"]) / 1e6 == pytest.approx(history.time[at])
            assert event["dur"] / 1e6 <= values["duration"] + 1e-6
        else:
            assert event["name"].endswith("(thinned)")
            assert event["ts"] / 1e6 <= history.time[at] + 1e-6
    full = [event for event in slices if event["args"]["width"] == 1]
    assert sum(math.isclose(e["dur"], 1e6 * e["args"]["duration"], abs_tol=1e-3) for e in full) > 0.95 * len(full)


def test_counters_hold_the_numbers_of_the_record(run, trace):
    history, rms = run.history, STATS.index("rms")
    counted = {}
    for event in of(trace, "C"):
        counted[event["pid"], event["name"], round(event["ts"], 3)] = event["args"]
    pids = {e["args"]["name"]: e["pid"] for e in of(trace, "M") if e["name"] == "process_name"}
    compared = 0
    for at, site in record_oracle.seen(run):
        where, ts = run.layout.sites[site], round(history.time[at] * 1e6, 3)
        name = f"{where.label} rms" + ("" if history.width[at] == 1 else " (thinned)")
        args = counted.get((pids[where.kind], name, ts), {})
        parts = {"value": history.mean} if history.width[at] == 1 else {}
        parts = parts or {"low": history.low, "mean": history.mean, "high": history.high}
        wanted = {end: float(table[at, site, rms]) for end, table in parts.items()}
        assert args == {end: value for end, value in wanted.items() if math.isfinite(value)}
        compared += len(args)
    assert compared > 1000


def test_what_is_not_finite_is_an_instant(run, trace):
    found = [event for event in of(trace, "i") if event["name"] == "loss of optimizer 0 is not finite"]
    bad = [at for at in range(len(run.history)) if not math.isfinite(record_oracle.scalars(run, at).get("loss", 0.0))]
    assert len(found) == sum(run.history.stream[at] == 0 for at in bad) > 0
    assert found[0]["args"] == {"value": "NaN"}


def test_events_last_as_long_as_they_did(run, diagnosis, trace):
    lasting = of(trace, "b")
    single = [event for event in of(trace, "i") if "event" in event["args"]]
    assert len(lasting) + len(single) == len(diagnosis.events) > 0
    time_of = {int(step): float(t) for step, t in zip(run.history.steps, run.history.time, strict=True)}
    for event in lasting + single:
        first = event["args"]["event"]["first_step"]
        if first in time_of:
            assert event["ts"] == pytest.approx(1e6 * time_of[first])


def test_a_selection(run, diagnosis, tmp_path):
    path = export(run, diagnosis, tmp_path / "t.json", "perfetto", Selection(("=1+1",), ("max",)))
    names = {event["name"] for event in of(json.loads(path.read_text()), "C") if event["pid"] > 1}
    assert {name.removesuffix(" (thinned)").split()[-1] for name in names} == {"max"}
    assert all(name.startswith("=1+1") for name in names)
