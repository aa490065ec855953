"""Groups of checked values: what they convert, what they refuse, and what they say of it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Literal

import numpy as np
import pytest

from neuraldbg.checked_values import CheckedValues, Field, InvalidValues
from neuraldbg.config import CaptureSettings, Settings, validated
from neuraldbg.detect import DETECTORS
from neuraldbg.errors import ConfigError


class Inner(CheckedValues):
    share: float | None = Field(0.5, gt=0, le=1, description="A share.")


class Group(CheckedValues):
    count: int = Field(3, ge=1, lt=10)
    name: str = "a"
    on: bool = True
    mode: Literal["fast", "slow"] = "fast"
    inner: Inner = Field(default_factory=Inner)
    names: tuple[str, ...] = Field(("x",), min_length=1)
    numbers: dict[str, float] = Field(default_factory=dict)
    anything: Any = None


def problems(**values):
    with pytest.raises(InvalidValues) as caught:
        Group(values)
    return [f"{one.name}: {one}" for one in caught.value.problems]


def test_values_are_converted_to_their_types():
    made = Group(count=np.int64(4), inner={"share": np.float32(0.25)}, names=["y", "z"], numbers={"a": 1}, anything=[1])
    assert made == Group(count=4, inner=Inner(share=0.25), names=("y", "z"), numbers={"a": 1.0}, anything=[1])
    assert type(made.count) is int
    assert type(made.numbers["a"]) is type(made.inner.share) is float
    assert Group(inner={"share": None}).inner.share is None
    assert Group().numbers is not Group().numbers
    assert made.replaced(count=5).count == 5 != made.count


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"count": 0}, "count: must be at least 1, not 0"),
        ({"count": 10}, "count: must be less than 10, not 10"),
        ({"count": 2.5}, "count: must be a whole number, not 2.5"),
        ({"count": True}, "count: must be a whole number, not True"),
        ({"count": "3"}, "count: must be a whole number, not '3'"),
        ({"on": 1}, "on: must be True or False, not 1"),
        ({"name": 7}, "name: must be a string, not 7"),
        ({"mode": "quick"}, "mode: must be 'fast' or 'slow', not 'quick'"),
        ({"inner": {"share": 0}}, "inner.share: must be greater than 0, not 0"),
        ({"inner": {"share": float("nan")}}, "inner.share: must be a finite number, not nan"),
        ({"inner": {"shore": 1}}, "inner.shore: unknown name (did you mean 'share'? known: share)"),
        ({"inner": 3}, "inner: must be values by name, not 3"),
        ({"names": []}, "names: must be a list of at least 1, not []"),
        ({"names": ["a", 3]}, "names[1]: must be a string, not 3"),
        ({"numbers": {"a": "b"}}, "numbers.a: must be a number, not 'b'"),
        ({"numbers": [1]}, "numbers: must be values by name, not [1]"),
    ],
)
def test_a_wrong_value_is_said(values, said):
    assert problems(**values) == [said]


def test_all_problems_are_said_at_once():
    said = problems(count=0, inner={"share": 2}, nme="b", name=3)
    assert said[:2] == ["count: must be at least 1, not 0", "inner.share: must be at most 1, not 2"]
    assert said[2].startswith("nme: unknown name (did you mean 'name'? known: count, name, on,")
    assert len(said) == 4


def test_a_value_without_default_must_be_given():
    class Needy(CheckedValues):
        must: int

    with pytest.raises(ConfigError, match="must: is missing"):
        Needy()
    assert Needy(must=1).must == 1


def test_a_group_cannot_be_changed():
    made = Group()
    with pytest.raises(AttributeError, match="immutable"):
        made.count = 4
    with pytest.raises(AttributeError, match="immutable"):
        del made.count
    assert repr(Inner()) == "Inner(share=0.5)"


def test_settings_are_checked_by_their_names():
    with pytest.raises(ConfigError, match=r"setting 'capture.overhead': must be at most 1, not 7"):
        validated(Settings, {"capture": {"overhead": 7}})
    with pytest.raises(ConfigError, match=r"setting 'capture.overhed': unknown name \(did you mean 'overhead'\?"):
        validated(Settings, {"capture": {"overhed": 0.1}})
    with pytest.raises(ConfigError, match=r"setting 'thresholds.dead_units': must be values by name, not 3"):
        validated(Settings, {"thresholds": {"dead_units": 3}})


def test_every_default_passes_its_own_check():
    groups = [type(cls().thresholds) for cls in DETECTORS]
    for group in (*groups, CaptureSettings, type(Settings().record), type(Settings().trigger)):
        assert group(group().__dict__) == group()


IMPORTED = """
import json, sys, torch, gc
before = set(sys.modules)
collected = gc.get_stats()[2]["collections"]
from neuraldbg import NeuralDbg
print(json.dumps([sorted(set(sys.modules) - before), gc.get_stats()[2]["collections"] - collected, gc.isenabled()]))
"""


def test_the_import_of_a_session_loads_what_watching_needs_and_no_more():
    """After torch it may take 100 ms: causes, pictures and facts wait until somebody asks."""
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    loaded, collections, collects = json.loads(done.stdout)
    late = ("neuraldbg.explain", "neuraldbg.nouns.facts.loss", "neuraldbg.show.notebook", "neuraldbg.show.forms")
    theirs = ("pydantic", "rich", "matplotlib", "plotly", "numpy.random", "triton", "torch._dynamo")
    assert [name for name in loaded if name.startswith((*late, *theirs))] == []
    assert collections == 0, "the collector searches all objects of torch"
    assert collects
    assert len(loaded) < 320
