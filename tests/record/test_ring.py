from __future__ import annotations

import json
import math
from collections.abc import Mapping

import numpy as np
import pytest

from neuraldbg.errors import ConfigError, NeuralDbgError
from neuraldbg.record import RingBuffer


def strict(path):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


class Lazy(Mapping):
    """Norms that are worked out only when somebody reads them."""

    def __init__(self, **norms):
        self.norms, self.reads = norms, 0

    def __getitem__(self, key):
        self.reads += 1
        return self.norms[key]

    def __iter__(self):
        return iter(self.norms)

    def __len__(self):
        return len(self.norms)


def test_the_dump_has_the_documented_shape(tmp_path):
    buffer = RingBuffer(capacity=100)
    buffer.add(0, {"fc1": 0.5}, {"fc1": 1.5}, 2.5)
    path = buffer.save_json(tmp_path / "crash_dump.json", trigger_reason="loss is NaN")
    dump = strict(path)
    assert set(dump) == {"metadata", "history"}
    assert set(dump["metadata"]) == {"capacity", "trigger_reason", "dump_timestamp", "captured_steps"}
    assert dump["metadata"]["capacity"] == 100
    assert dump["metadata"]["trigger_reason"] == "loss is NaN"
    assert dump["metadata"]["captured_steps"] == 1
    (row,) = dump["history"]
    assert row["timestamp"] <= dump["metadata"]["dump_timestamp"]
    del row["timestamp"]
    assert row == {"step": 0, "loss": 2.5, "grad_norms": {"fc1": 0.5}, "act_norms": {"fc1": 1.5}}


def test_non_finite_numbers_are_strings(tmp_path):
    buffer = RingBuffer()
    buffer.add(0, {"a": math.nan, "b": np.float32(np.inf)}, {"a": -math.inf}, math.nan)
    (row,) = strict(buffer.save_json(tmp_path / "d.json"))["history"]
    assert row["loss"] == "NaN"
    assert row["grad_norms"] == {"a": "NaN", "b": "Infinity"}
    assert row["act_norms"] == {"a": "-Infinity"}


def test_only_the_last_steps_are_kept():
    buffer = RingBuffer(3)
    for i in range(10):
        buffer.add(i, {}, {}, float(i))
    assert len(buffer) == 3
    assert [row["step"] for row in buffer.history] == [7, 8, 9]


def test_the_steps_that_led_to_a_nan_are_not_pushed_out_by_those_after_it():
    buffer = RingBuffer(20)
    for i in range(100):
        buffer.add(i, {}, {}, 1.0 if i < 40 else math.nan)
    assert [row["step"] for row in buffer.history] == list(range(30, 50))
    buffer.add(100, {}, {}, 1.0)  # it recovered: what comes now may be what matters
    assert [row["step"] for row in buffer.history] == [*range(31, 50), 100]
    buffer = RingBuffer(20)
    for i in range(100):
        buffer.add(i, {}, {}, 1.0 if i < 3 else math.inf)
    assert [row["step"] for row in buffer.history] == list(range(20)), "there was room"


def test_a_bound_in_bytes_keeps_fewer_steps_but_the_last():
    class Table(Lazy):
        nbytes = 1000

    buffer = RingBuffer(100, most=3500)
    for i in range(10):
        buffer.add(i, Table(), Table(), 1.0)
    assert [row["step"] for row in buffer.history] == [7, 8, 9]
    for i in range(10, 60):  # light steps hold nothing
        buffer.add(i, {}, {}, 1.0)
    assert len(buffer) == 53
    Table.nbytes = 10_000
    buffer.add(60, Table(), Table(), 1.0)
    assert len(buffer) == 1


def test_a_reused_dict_is_copied_and_a_lazy_mapping_is_read_at_the_end():
    norms = {"fc1": 1.0}
    lazy = Lazy(fc1=7.0)
    buffer = RingBuffer()
    buffer.add(0, norms, lazy, 1.0)
    norms["fc1"] = 2.0
    assert lazy.reads == 0
    assert buffer.history[0]["grad_norms"] == {"fc1": 1.0}
    assert buffer.history[0]["act_norms"] == {"fc1": 7.0}


def test_a_failed_dump_leaves_the_old_one_and_says_where(tmp_path):
    (tmp_path / "file").write_text("x")
    buffer = RingBuffer()
    buffer.add(0, {}, {}, 1.0)
    with pytest.raises(OSError, match="crash dump cannot be written") as caught:
        buffer.save_json(tmp_path / "file" / "dump.json")
    assert isinstance(caught.value, NeuralDbgError)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_missing_folders_are_made_and_nothing_else_is_left(tmp_path):
    path = RingBuffer().save_json(tmp_path / "a" / "b" / "dump.json")
    assert [p.name for p in path.parent.iterdir()] == ["dump.json"]
    assert strict(path)["history"] == []


def test_a_ring_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="capacity"):
        RingBuffer(0)
