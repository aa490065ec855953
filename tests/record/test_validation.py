"""Run files that somebody made up: whole by their checksums, and with values that we never write."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest
from tests.record.known_steps import INFO, assert_same, event, layout, step

from neuraldbg.config import RecordSettings
from neuraldbg.errors import RunDamaged
from neuraldbg.explain import diagnose
from neuraldbg.nouns import jsonable
from neuraldbg.nouns.run import OUTCOMES
from neuraldbg.record import Recorder, codec, read_run
from neuraldbg.record.reader import read_scalars
from neuraldbg.record.validation import LATEST_S
from neuraldbg.saved import Run
from neuraldbg.show.report.watching import about, watching

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run file and the same run as the JSON document that is exported: their bytes."""
    folder = tmp_path_factory.mktemp("made")
    recorder = Recorder(folder, RecordSettings(), INFO)
    for i in range(20):
        recorder.put(step(i), layout(), (event(i),) if i == 10 else ())
    recorder.close()
    Run.load(folder).export(folder / "run.json", "session")
    return (folder / "rank0.ndbg").read_bytes(), (folder / "run.json").read_bytes()


@pytest.fixture
def file(made, tmp_path):
    path = tmp_path / "rank0.ndbg"
    path.write_bytes(made[0])
    return path


@pytest.fixture
def document(made, tmp_path):
    return json.loads(made[1]), tmp_path / "run.json"


def put(file, table, where, value):
    """Write a JSON value in the place of another."""
    db = sqlite3.connect(file)
    db.execute(f"UPDATE {table} SET value = ? WHERE {where}", (value if isinstance(value, str) else json.dumps(value),))
    db.commit()
    db.close()


STRANGE_INFO = [
    ("script", 5), ("script", None), ("argv", "train.py"), ("argv", [1]), ("models", 5), ("models", [None]),
    ("optimizers", {"SGD": 1}), ("versions", ["x"]), ("versions", {"torch": 2}), ("device", ["cpu"]),
    ("started", "abc"), ("started", "NaN"), ("started", float("nan")), ("started", float("inf")), ("started", 1e300),
    ("started", 10**400), ("started", -1.0), ("started", True), ("started", LATEST_S + 1),
    ("outcome", "completed"), ("outcome", {"kind": ["x"]}), ("outcome", {"kind": "exploded"}),
    ("outcome", {"kind": "raised", "message": 5}), ("outcome", {"kind": "raised", "color": "red"}),
    ("seed", 1.5), ("seed", "3"), ("seed", 10**30), ("coverage", 5), ("coverage", None), ("coverage", {"cost": 5}),
    ("coverage", {"cost": {"ratio": "high"}}), ("coverage", {"cost": {"parts_s": [1]}}),
    ("coverage", {"cost": {"parts_s": {"layers": {}}}}), ("coverage", {"never_fired": 5}),
    ("coverage", {"notes": [["x"]]}), ("coverage", {"graded": "many"}), ("coverage", {"coarse": -1}), ("more", 1),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), STRANGE_INFO)
def test_what_was_run_is_what_we_write_or_damaged(file, document, field, value):
    raw = {**jsonable(INFO), field: value}
    put(file, "meta", "key = 'info'", raw)
    for ask in (read_run, read_scalars):
        with pytest.raises(RunDamaged) as caught:
            ask(file)
        assert field in str(caught.value).lower() or "is not JSON" in str(caught.value)
        assert len(str(caught.value)) < 600
    whole, path = document
    path.write_text(json.dumps({**whole, "run": raw}), encoding="utf-8")
    with pytest.raises(RunDamaged, match=rf"(?i:{field})|is not JSON"):
        read_run(path)


STRANGE_EVENT = [
    ("first_step", "3"), ("first_step", 1.5), ("first_step", True), ("first_step", 11), ("last_step", 9),
    ("last_step", 2**63), ("last_step", None), ("kind", 5), ("layer", 5), ("layer", ["fc1"]), ("site", None),
    ("confidence", 2.0), ("confidence", "sure"), ("confidence", "NaN"), ("details", [1]), ("colour", "red"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), STRANGE_EVENT)
def test_events_are_what_we_write_or_damaged(file, document, field, value):
    raw = {**jsonable(event(10)), field: value}
    put(file, "event", "1", raw)
    with pytest.raises(RunDamaged):
        read_run(file)
    whole, path = document
    path.write_text(json.dumps({**whole, "events": [raw]}), encoding="utf-8")
    with pytest.raises(RunDamaged):
        read_run(path)


@pytest.mark.parametrize(
    ("table", "where", "value"),
    [
        ("site", "row = 0", {"kind": 5, "module": "fc0"}),
        ("site", "row = 0", {"kind": "param", "module": None}),
        ("site", "row = 0", {"kind": "param", "module": "fc0", "call": -1}),
        ("site", "row = 0", ["param"]),
        ("site", "row = 0", DEEP),
        ("fact", "1", [1]),
        ("fact", "1", "5"),
        ("meta", "key = 'layers'", {"path": "fc0"}),
        ("meta", "key = 'layers'", ["fc0"]),
        ("meta", "key = 'layers'", [{"path": 5, "type": "Linear", "model": "Net", "leaf": True}]),
        ("meta", "key = 'layers'", [{"path": "fc0", "type": "Linear", "model": "Net", "leaf": 1}]),
        ("meta", "key = 'layers'", [{"path": "fc0", "type": "Linear", "model": "Net", "leaf": True, "params": "w"}]),
        ("meta", "key = 'layers'", [{"path": "fc0", "type": "Linear", "model": "Net", "leaf": True, "settings": 5}]),
        ("meta", "key = 'edges'", [{"source": "fc0"}]),
        ("meta", "key = 'edges'", [{"source": "fc0", "target": ["fc1"], "ops": []}]),
        ("meta", "key = 'edges'", [{"source": "fc0", "target": "fc1", "ops": "relu"}]),
        ("meta", "key = 'called'", [5]),
        ("meta", "key = 'called'", {"fc0": 1}),
        ("meta", "key = 'called'", '"fc0"'),
    ],
)
def test_the_layout_and_facts_are_what_we_write_or_damaged(file, table, where, value):
    put(file, table, where, value)
    with pytest.raises(RunDamaged):
        read_run(file)


@pytest.mark.parametrize("time", [np.nan, np.inf, -np.inf, 1e300])
def test_the_time_of_a_step_is_a_number_or_damaged(file, document, time):
    db = sqlite3.connect(file)
    for number, body in db.execute("SELECT id, body FROM block").fetchall():
        block = codec.decode(body)
        block.time[3] = time
        db.execute("UPDATE block SET body = ? WHERE id = ?", (codec.encode(block), number))
    db.commit()
    db.close()
    whole, path = document
    whole["steps"][3]["time"] = jsonable(time)
    path.write_text(json.dumps(whole), encoding="utf-8")
    for one in (file, path):
        with pytest.raises(RunDamaged, match=r"time of a step|steps\.time"):
            read_run(one)


@pytest.mark.parametrize(
    "change",
    [
        {"recorded": -1},
        {"recorded": "NaN"},
        {"facts": [{"step": 0.5, "key": "a", "value": {}}]},
        {"facts": [{"step": 0, "key": 5, "value": {}}]},
    ],
)
def test_what_only_a_document_can_say(document, change):
    whole, path = document
    path.write_text(json.dumps({**whole, **change}), encoding="utf-8")
    with pytest.raises(RunDamaged):
        read_run(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("outcome", {"kind": kind, "message": "", "where": ""}) for kind in OUTCOMES),
        ("started", 0),
        ("started", LATEST_S),
        ("seed", None),
        ("coverage", {}),
        ("coverage", {"cost": None}),
        ("coverage", {"cost": {"budget": None, "ratio": "NaN", "own_s": 0, "parts_s": {"layers": 0.5}}, "later": [{}]}),
    ],
)
def test_what_we_write_is_read_and_judged(file, tmp_path, field, value):
    put(file, "meta", "key = 'info'", {**jsonable(INFO), field: value})
    run = Run.load(file)
    diagnosis = diagnose(run)
    assert dict(about(run, diagnosis))["script"] == "train.py"
    assert "layers seen" in dict(watching(run, diagnosis)) or field == "coverage"
    whole = read_run(file)
    if value != INFO.coverage and field == "coverage" and value.get("cost"):
        assert whole.info.coverage == {**value, "cost": {**value["cost"], "ratio": None}}
    run.export(tmp_path / "again.json", "session")
    assert_same(read_run(tmp_path / "again.json").info, whole.info)
